"""Addresses and interfaces for torch's processes, limited to those of the run.

torch's own store listens on every interface of the machine, and anyone who reaches it can change
it. Here torchrun's static rendezvous has a store that listens on one address only.
"""

import socket

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.api import RendezvousParameters
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from harness.config.backends import BACKENDS

BACKEND = "static_bound"
PORT = 29500  # of the rendezvous, inside the first node's namespace


def environment(interface: str) -> dict[str, str]:
    """Return variables that keep all of torch's traffic on `interface`, and off shared memory."""
    names = [name for backend in BACKENDS.values() for name in backend.variables]
    return dict.fromkeys(names, interface) | {
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "TP_SOCKET_IFNAME": interface,
    }


class BoundRendezvous(StaticTCPRendezvous):
    """Rendezvous of nodes that are known beforehand: each has its number."""

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        if self.rank == 0 and self._store is None:
            self._store = listening(self.master_addr, self.master_port, self.world_size)
        return super().next_rendezvous()


def listening(address: str, port: int, nodes: int) -> TCPStore:
    """Return the store of a run for `nodes` processes. Port 0 takes a free one."""
    listener = socket.create_server((address, port), backlog=nodes + socket.SOMAXCONN)
    return TCPStore(
        address,
        listener.getsockname()[1],
        nodes,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener.detach(),
    )


def _made(parameters: RendezvousParameters) -> BoundRendezvous:
    address, port = parse_rendezvous_endpoint(parameters.endpoint, -1)
    rank, timeout = int(parameters.config["rank"]), int(parameters.config["timeout"])
    return BoundRendezvous(address, port, rank, parameters.max_nodes, parameters.run_id, timeout)


rendezvous_handler_registry.register(BACKEND, _made)
