"""What a compression algorithm sees: the bucket to reduce, the other workers, what it returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import torch
from torch import Size, Tensor

from compressors.buffers import Buffers


@dataclass(frozen=True)
class Bucket:
    """The run of gradients DDP hands over at once; with error feedback, the residual added."""

    index: int  # in this exchange, 0 for the one that is ready first
    step: int  # exchange number, 0 for the first
    names: tuple[str, ...]  # of the parameters, in order
    shapes: Sequence[Size]  # of the parameters, in the same order
    buffers: Buffers  # for `compressors.fused`
    parameters: Sequence[Tensor] = ()  # read only, in order, shaped; none where none are trained

    @property
    def grad(self) -> Tensor:
        """The gradient, [n], float32; the compressor's own: it may be overwritten, as `unsent`."""
        return self.buffers.grad

    @property
    def gradients(self) -> list[Tensor]:
        """Views of `grad` by parameter, with their shapes."""
        parts = zip(self.grad.split(self.sizes), self.shapes, strict=True)
        return [part.view(shape) for part, shape in parts]

    @property
    def sizes(self) -> list[int]:
        """Elements of every parameter."""
        return [shape.numel() for shape in self.shapes]

    @property
    def n(self) -> int:
        """Elements of all of them."""
        return self.buffers.n

    @property
    def device(self) -> torch.device:
        return self.buffers.device

    @property
    def needs_residual(self) -> bool:
        """True if the caller will read `unsent`; if False, an algorithm need not compute it."""
        return self.buffers.needs_residual

    def split(self, sizes: Sequence[int] | None = None) -> list[Buffers]:
        """The buffers in parts of these sizes; None: by parameter."""
        return self.buffers.split(self.sizes if sizes is None else sizes)

    def empty_mean(self) -> Tensor:
        """Memory for the mean, [n], of any content; `grad` must not be read once it is written.

        After that `grad` is only the residual, if that is needed.
        """
        return self.buffers.out_buffer()[0]

    def check_finite(self, found: float) -> None:
        """For code that has not read `grad`: a number that is finite only if the gradient is."""
        self.buffers.check_finite(found)


class Reduced(NamedTuple):
    """Result of a reduction over all workers."""

    mean: Tensor  # [n], equal on every worker
    unsent: Tensor | None  # [n], what this worker did not contribute; None when it sent everything,
    # of any content when the bucket needs no residual


class Workers(Protocol):
    """The data-parallel workers, as an algorithm sees them; every byte and second is counted.

    Calls block. What was given may be written over afterwards: nobody reads it any more, and what
    was returned does not change. While the first call of a bucket blocks, other buckets may begin:
    what they read, and is not kept by bucket, is written before it.
    """

    rank: int
    world_size: int

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        """Mean or sum over workers of `tensor` (any shape, the same on all); may reuse its memory.

        Integers can only be summed. The result has the same bits on every worker.
        """
        ...

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Every worker's tensors, 1-D and of any types, by rank.

        Lengths may differ between tensors and between workers; `equal` promises that they do not
        between workers, and saves the round trip that tells them.
        """
        ...

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        """Send each worker its piece; return, by rank, the pieces received, one per argument.

        Each argument lists a 1-D tensor for every worker, all of one type; lengths may differ.
        `equal` promises that all workers send the lengths this one sends, and saves a round trip.
        """
        ...


class Compressor(Protocol):
    """A gradient reduction: compress, exchange, decompress, in straight-line blocking code.

    A class derives from this and declares where it differs. The defaults are laws that every one
    is tested for, in tests/compressors/test_contract.py.
    """

    uniform_density: bool = False  # all workers must use one density
    has_level: bool = True  # False: density is ignored, the bytes sent do not depend on it
    is_mean: bool = True  # False: the result is not the mean of `grad - unsent` over workers
    rounding: float = 1e-6  # of a value on its way, relative to the largest of the bucket
    largest: float = inf  # above this magnitude a gradient is refused with OverflowError
    replaces: tuple[str, ...] = ()  # settings that must be off: the compressor does their work
    # In the authors' code backward waits until a bucket is reduced, as a second collective of it
    # needs the result of the first.
    waits: bool = False
    sends_positions: bool = False  # each entry has its position: a server can get all of a residual
    pushes: bool = True  # False: what it sends means nothing without the others', to a server
    shares_state: bool = False  # what it keeps is for all threads of a trainer that call it
    by_shape: bool = False  # what it sends follows from shapes, density and step: values may lack
    phases: tuple[float, ...] = (1.0,)  # shares of its work before the first collective, the 2nd...
    sent_entries: int | None = None  # of the last bucket, set when sent; None: as density says
    sent_of: int | None = None  # entries that these are of; None: all of the bucket's

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of what the workers contribute of `bucket.grad`; `density` in (0, 1] is kept."""
        ...

    def searches(
        self, sizes: Mapping[str, int], density: float, step: int
    ) -> Mapping[str, Sequence[int]]:
        """Sizes of the parameters whose thresholds a `reduce` of `step` seeks anew, by how.

        `sizes` are those of a bucket's parameters by name. Where compression is charged what it
        costs a device, this comes on top of what every step costs.
        """
        return {}

    def elements(self, shape: Size, step: int) -> int | None:
        """Elements of the one all-reduce of a step for a gradient of this shape; None: unknown.

        By it buckets can be filled by what is sent (`fusion=compressed`).
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
