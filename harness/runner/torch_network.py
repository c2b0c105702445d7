"""How torch's processes reach each other: by a run's own addresses and interface alone.

torch's own store listens on every interface of the machine, and whoever reaches it can change what
it holds. Here torchrun's static rendezvous has one that listens on its own address.
"""

import socket

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.api import RendezvousParameters
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

BACKEND = "static_bound"
PORT = 29500  # of the rendezvous, inside the first node's namespace


def environment(interface: str) -> dict[str, str]:
    """Variables that keep gloo, NCCL and TensorPipe on `interface`, and off shared memory."""
    return {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "TP_SOCKET_IFNAME": interface,
    }


class BoundRendezvous(StaticTCPRendezvous):
    """The nodes of a run are known before: each has its number."""

    def get_backend(self) -> str:
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        if self.rank == 0 and self._store is None:
            self._store = listening(self.master_addr, self.master_port, self.world_size)
        return super().next_rendezvous()


def listening(address: str, port: int, nodes: int) -> TCPStore:
    """The store of a run, for `nodes` processes, this one among them; port 0 takes a free one."""
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
