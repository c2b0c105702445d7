"""What a compression algorithm sees: the bucket to reduce, the other workers, what it returns."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple, Protocol

from torch import Tensor


def _good() -> None:
    """The gradient has been examined."""


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
    added: Tensor | None = None  # [n], read only: a compressor that `adds` adds it to grad first
    out: Tensor | None = None  # [n], room for the mean; it may share the memory of added or grad
    parameters: Sequence[Tensor] = ()  # read only, in order, shaped; none where none are trained
    examine: Callable[[], None] = _good  # FloatingPointError if the gradient is not finite

    def room(self) -> Tensor:
        """Memory for the mean, [n], of any content.

        It may be that of `added`, or of `grad` where nobody keeps `unsent`: write there only when
        nothing is read from these any more.
        """
        return self.grad.new_empty(self.grad.shape) if self.out is None else self.out

    def see(self, found: float) -> None:
        """For a compressor that `checks`: a number that is finite only if all of the gradient is.

        It may be infinite for another reason; then there is a closer look, and no error.
        """
        if not isfinite(found):
            self.examine()

    @property
    def is_kept(self) -> bool:
        """True if the caller will read `unsent`; if False, an algorithm need not compute it."""
        return self.out is None or self.out.data_ptr() != self.grad.data_ptr()

    @property
    def may_clear(self) -> bool:
        """True if `added` is also the output buffer, so that it may be zeroed while it is added."""
        return self.added is not None and self.out is self.added


class Reduced(NamedTuple):
    """Result of a reduction over all workers."""

    mean: Tensor  # [n], equal on every worker
    unsent: Tensor | None  # [n], what this worker did not contribute; None when it sent everything,
    # of any content when the bucket says that it is not kept


class Workers(Protocol):
    """The data-parallel workers, as an algorithm sees them; every byte and second is counted.

    Calls block. What was given may be written over afterwards: nobody reads it any more, and what
    was returned does not change. While the first call of a bucket blocks, other buckets may begin:
    what they read, and is not kept by bucket, is written before it.
    """

    rank: int
    size: int

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

    Laws that every one of them is tested for (tests/compressors/test_contract.py) unless a class
    attribute says otherwise:
    - `is_mean = False`: the result is not the mean of `grad - unsent` over workers;
    - `has_level = False`: `density` is ignored, the bytes sent do not depend on it;
    - `replaces`: settings that must be off, because the compressor does their work;
    - `rounding`: of a value on its way, relative to the largest of the bucket (default 1e-6);
    - `adds = True`: where there is error feedback, `grad` is the residual e and `added` the new
      gradient g; the compressor adds them in a pass it makes anyway (default: `grad` is g + e);
    - `checks = True`: it calls `bucket.see` before it sends, with what a pass that it makes anyway
      found; nobody reads the gradient for that (default: the gradient is known to be finite);
    - `sent_entries`: so many this worker contributed of the bucket that was reduced last, where
      density cannot tell; set after its collectives;
    - `waits = True`: in the authors' code backward waits until a bucket is reduced, as a second
      collective of it needs the result of the first (default: it goes on);
    - `sends_positions = True`: each entry travels with its position, so that a server can be sent
      all of a residual (default: it cannot);
    - `shares_state = True`: what it keeps between buckets is for all threads of a trainer that call
      it (default: they would write over each other's);
    - `pushes = False`: what it sends means nothing without the other workers' (all-to-all, or a
      collective that needs the mean of another), so a server cannot take it (default: it can);
    - `phases`: how its work is divided into that before its first collective, before the second,
      ..., and after the last (default: all is before the first);
    - `elements(shape, step)`: how many the one all-reduce of a step has for a gradient of this
      shape, so that buckets can be filled by what is sent (`fusion=compressed`);
    - `by_shape = True`: what it calls and sends follows from shapes, density and step alone, so
      that it can be replayed without any values (default: they may decide);
    - `largest`: above this magnitude a gradient is refused with OverflowError (default infinity).
    """

    uniform_density: bool  # True when all workers must use one density

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of what the workers contribute of `bucket.grad`; `density` in (0, 1] is kept."""
        ...
