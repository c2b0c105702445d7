"""Interface of the communication backend of a process group."""

from typing import Protocol

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup as ProcessGroup

OPERATIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN}


class Backend(Protocol):
    """Collectives of one kind of process group, on tensors of `device_type`.

    Calls block. On a GPU they block only until the operation is queued in the current stream.
    """

    device_type: str  # cpu | cuda

    def all_reduce(self, group: ProcessGroup, tensor: Tensor, op: str) -> None:
        """Replace `tensor` by the elementwise `op` over workers, "sum" or "min"."""
        dist.all_reduce(tensor, op=OPERATIONS[op], group=group)

    def all_gather(self, group: ProcessGroup, mine: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return every rank's `mine`, uint8 of `sizes` bytes, ordered by rank."""
        ...

    def all_to_all(
        self, group: ProcessGroup, mine: Tensor, outgoing: list[int], incoming: list[int]
    ) -> Tensor:
        """Send `outgoing[p]` elements of `mine` to each rank p. Return the received ones."""
        theirs = mine.new_empty(sum(incoming))
        dist.all_to_all_single(theirs, mine, incoming, outgoing, group=group)
        return theirs

    def send(self, group: ProcessGroup, tensor: Tensor, peer: int, tag: int = 0) -> dist.Work:
        """Start sending `tensor` to rank `peer`. Do not change it before the work is done."""
        work = dist.isend(tensor, group=group, group_dst=peer, tag=tag)
        assert work is not None  # this rank is a member of its group
        return work

    def receive(self, group: ProcessGroup, tensor: Tensor, peer: int, tag: int = 0) -> dist.Work:
        """Start filling `tensor` with a message from rank `peer` of the group."""
        work = dist.irecv(tensor, group=group, group_src=peer, tag=tag)
        assert work is not None
        return work
