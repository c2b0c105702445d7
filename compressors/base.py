"""What a compression algorithm sees: the bucket to reduce, the other workers, what it returns."""

from typing import NamedTuple, Protocol

from torch import Tensor


class Bucket(NamedTuple):
    """The run of gradients DDP hands over at once, residual already added.

    `grad` belongs to the compressor during `reduce`: it may be overwritten, and `Reduced.unsent`
    may be the same memory. `gradients` are its views by parameter, with the parameters' shapes.
    """

    index: int  # type: ignore[assignment]  # in this exchange, 0 for the one that is ready first
    step: int  # exchange number, 0 for the first
    grad: Tensor  # [n], float32
    gradients: list[Tensor]  # views of grad, in order
    names: tuple[str, ...]  # of the parameters, in the same order


class Reduced(NamedTuple):
    """Result of a reduction over all workers."""

    mean: Tensor  # [n], equal on every worker
    unsent: Tensor | None  # [n], what this worker did not contribute; None when it sent everything


class Workers(Protocol):
    """The data-parallel workers, as an algorithm sees them; every byte and second is counted."""

    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Mean over workers of `tensor` (any shape, the same on all); may reuse its memory."""
        ...

    def all_gather(self, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
        """Every worker's tensors, by rank.

        One length for all tensors of a worker; lengths may differ between workers.
        """
        ...


class Compressor(Protocol):
    """A gradient reduction: compress, exchange, decompress, in straight-line blocking code."""

    uniform_density: bool  # True when all workers must use one density

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of what the workers contribute of `bucket.grad`; `density` in (0, 1] is kept."""
        ...
