"""Interface of compression algorithms: the bucket to reduce, the other workers, and the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import torch
from torch import Size, Tensor

from compressors.buffers import Buffers


@dataclass(frozen=True)
class Bucket:
    """Gradients that DDP hands over together, flattened, with the residual already added."""

    index: int  # in this exchange, 0 for the one that is ready first
    step: int  # exchange number, 0 for the first
    names: tuple[str, ...]  # of the parameters, in order
    shapes: Sequence[Size]  # of the parameters, in the same order
    buffers: Buffers  # for `compressors.fused`
    parameters: Sequence[Tensor] = ()  # read only, in order, shaped; none where none are trained

    @property
    def grad(self) -> Tensor:
        """The gradient, float32 [n], which the compressor owns and may overwrite."""
        return self.buffers.grad

    @property
    def gradients(self) -> list[Tensor]:
        """Views of `grad`, one per parameter, in the parameters' shapes."""
        parts = zip(self.grad.split(self.sizes), self.shapes, strict=True)
        return [part.view(shape) for part, shape in parts]

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each parameter."""
        return [shape.numel() for shape in self.shapes]

    @property
    def n(self) -> int:
        """Number of elements of the bucket."""
        return self.buffers.n

    @property
    def device(self) -> torch.device:
        return self.buffers.device

    @property
    def needs_residual(self) -> bool:
        """True if the caller will read `unsent`. If False, an algorithm need not compute it."""
        return self.buffers.needs_residual

    def split(self, sizes: Sequence[int] | None = None) -> list[Buffers]:
        """Return the buffers in parts of `sizes`, by default one part per parameter."""
        return self.buffers.split(self.sizes if sizes is None else sizes)

    def empty_mean(self) -> Tensor:
        """Return uninitialised memory for the mean, [n]. Do not read `grad` after writing to it.

        Afterwards `grad` holds only the residual, if one is needed.
        """
        return self.buffers.out_buffer()[0]

    def check_finite(self, found: float) -> None:
        """Raise FloatingPointError if the gradient has NaN or inf, without reading `grad`.

        `found` is any number that is finite only if all elements of the gradient are.
        """
        self.buffers.check_finite(found)


class Reduced(NamedTuple):
    """Result of a reduction over all workers."""

    mean: Tensor  # [n], equal on every worker
    unsent: Tensor | None  # [n], what this worker did not contribute; None when it sent everything,
    # of any content when the bucket needs no residual


class Workers(Protocol):
    """Collectives between data-parallel workers, as a compressor uses them.

    Every call blocks until it is done. Its bytes and seconds are counted for the run's records. A
    caller may overwrite its inputs after the call. Returned tensors are not changed later.

    A bucket's first call lets the compression of other buckets start while it blocks. Before that
    call, write all state that other buckets read. State that is not kept by bucket may not be
    written after it.
    """

    rank: int
    world_size: int

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        """Return the mean over workers of `tensor`, of any shape, or the sum for op="sum".

        All workers pass equal shapes. Integers can only be summed. The result has the same bits on
        every worker, and may be in the memory of `tensor`.
        """
        ...

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Return every worker's `tensors` as a list of tuples, ordered by rank.

        The tensors are 1-D, of any types. Lengths may differ between tensors and between workers.
        `equal` promises equal lengths on all workers. It saves a round trip for the lengths.
        """
        ...

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Send item r of each list in `pieces` to rank r. Return what arrived, ordered by rank.

        Each list has a 1-D tensor for every worker, all of one type. Lengths may differ. The result
        has a tuple per sender, with one tensor per argument. `equal` promises that all workers send
        the lengths that this one sends, which saves a round trip.
        """
        ...


class Compressor(Protocol):
    """A gradient reduction: compress, exchange and decompress, as straight-line blocking code.

    A subclass overrides the declarations below where it differs from the defaults.
    tests/compressors/test_contract.py tests every compressor against them.
    """

    uniform_density: bool = False  # all workers must use one density
    has_level: bool = True  # False: density is ignored, the bytes sent do not depend on it
    is_mean: bool = True  # False: the result is not the mean of `grad - unsent` over workers
    rounding: float = 1e-6  # largest error of a sent value, relative to the bucket's largest value
    largest: float = inf  # above this magnitude a gradient is refused with OverflowError
    replaces: tuple[str, ...] = ()  # settings that must be off: the compressor does their work
    # In the authors' code backward waits until a bucket is reduced, as a second collective of it
    # needs the result of the first.
    waits: bool = False
    pushes: bool = True  # False: a server cannot decode one worker's message
    shares_state: bool = False  # all threads of a trainer share one object
    needs_shapes: bool = False  # compresses whole matrices, so it cannot compress a shard
    by_shape: bool = False  # bytes follow from shapes, density and step; needs no values
    phases: tuple[float, ...] = (1.0,)  # shares of its work before the first collective, the 2nd...
    sent_entries: int | None = None  # of the last bucket, set when sent; None: as density says
    sent_of: int | None = None  # entries that these are of; None: all of the bucket's

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of the contributions from `bucket.grad`, at `density` in (0, 1]."""
        ...

    def searches(
        self, sizes: Mapping[str, int], density: float, step: int
    ) -> Mapping[str, Sequence[int]]:
        """Return, by kind of search, the sizes of parameters whose thresholds `step` computes anew.

        `sizes` maps the bucket's parameters to elements. The cost model charges these searches on
        top of the cost of every step.
        """
        return {}

    def elements(self, shape: Size, step: int) -> int | None:
        """Return how many elements the only all-reduce of `step` sends for a gradient of `shape`.

        With it, buckets can be filled by bytes sent (`fusion=compressed`). None: not supported.
        """
        return None

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        """Return a tensor of the shape and type that `kept`, from a checkpoint, must have.

        `field` names the attribute that keeps it for parameters of these `shapes`. The result is on
        the meta device; None accepts any.
        """
        return None
