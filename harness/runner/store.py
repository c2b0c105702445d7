"""torchrun's static rendezvous with a store that listens on its own address alone.

torch's listens on every interface of the machine, and whoever reaches it can change what it holds.
"""

import socket

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, rendezvous_handler_registry
from torch.distributed.elastic.rendezvous.api import RendezvousParameters
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

BACKEND = "static_bound"


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
