"""The interface of what carries the collectives of a process group."""

from typing import Protocol

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup as ProcessGroup

OPERATIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN}


class Backend(Protocol):
    """The collectives of one kind of process group, on tensors of `device_type`.

    Calls block, on a GPU until the operation is queued in the current stream.
    """

    device_type: str  # cpu | cuda

    def all_reduce(self, group: ProcessGroup, tensor: Tensor, op: str) -> None:
        """Replace `tensor` by the `sum` or `min` over the group's ranks."""
        dist.all_reduce(tensor, op=OPERATIONS[op], group=group)

    def all_gather(self, group: ProcessGroup, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Every rank's piece, uint8 of `sizes` bytes, by rank."""
        ...

    def all_to_all(
        self, group: ProcessGroup, mine: Tensor, outgoing: list[int], incoming: list[int]
    ) -> Tensor:
        """Send `outgoing[p]` elements of `mine` to every rank p; return those that arrived."""
        theirs = mine.new_empty(sum(incoming))
        dist.all_to_all_single(theirs, mine, incoming, outgoing, group=group)
        return theirs

    def send(self, group: ProcessGroup, tensor: Tensor, peer: int, tag: int = 0) -> dist.Work:
        """Begin to send `tensor` to rank `peer` of the group; it must not change meanwhile."""
        work = dist.isend(tensor, group=group, group_dst=peer, tag=tag)
        assert work is not None  # this rank is a member of its group
        return work

    def receive(self, group: ProcessGroup, tensor: Tensor, peer: int, tag: int = 0) -> dist.Work:
        """Begin to receive from rank `peer` of the group what fills `tensor`."""
        work = dist.irecv(tensor, group=group, group_src=peer, tag=tag)
        assert work is not None
        return work
