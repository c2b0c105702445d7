"""ACP-SGD: PowerSGD with one factor a step, P and Q in turn (Zhang et al., 2023, Algorithm 2).

Even steps compute P = M Q, with the last Q made orthonormal. Odd steps compute Q = M^T P, with the
last P made orthonormal. So a step has one product, one QR decomposition and one all-reduce, and
never waits between two. The result is P Q^T with the mean factor. `unsent` is M - P Q^T with this
worker's own factor, which is known before the others arrive.

Vectors are not compressed and travel with either factor. Use it with `error_feedback: true`. We
differ: workers start from equal factors without a broadcast, and no global generator is used. They
get equal bits if they run the same kernels, on processors of one kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.lowrank import (
    Part,
    all_reduced,
    check_rank,
    factor_like,
    keep,
    most_rank,
    nearest_rank,
    orthonormal,
    parts_of,
    resized,
)


@dataclass
class ACPSGD(Compressor):
    """Compressor that sends a factor of every matrix, P and Q in turn, kept by parameter name."""

    needs_shapes = True
    by_shape = True
    pushes = False
    phases = (2, 1)  # products
    rounding = 1e-5  # a factor's elements are larger than the matrix's
    rank: int | None = 4  # of the factors; null: that whose bytes are nearest to density x dense
    reuse: bool = True  # start from the last factor; false: from a new random one at every step
    seed: int = 0  # random factors follow from (seed, step, parameter), equal for all workers
    uniform_density: bool = field(init=False)
    has_level: bool = field(init=False)
    lefts: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # P, [r, n]
    rights: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # Q, [r, m]

    def __post_init__(self) -> None:
        check_rank(self.rank)
        self.uniform_density = self.has_level = self.rank is None

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        return factor_like(kept, shapes[0], self.rank, side=0 if field == "lefts" else 1)

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean gradient, [n], with matrices approximated by the factors.

        One all-reduce of 4 (sum of r n, and V) bytes at even steps, and 4 (sum of r m, and V) at
        odd steps. The sums are over matrices [n, m] of ranks r = min(rank, n, m), and V counts all
        other elements. `density` matters only if `rank` is null. `unsent` is `bucket.grad`.
        """
        parts = parts_of(bucket, mean := bucket.empty_mean())
        rank = self._rank(parts, density)
        matrices = [part for part in parts if part.is_matrix]
        vectors = [part for part in parts if not part.is_matrix]
        computes_left = bucket.step % 2 == 0
        known = orthonormal([self._known(part, rank, bucket.step) for part in matrices])
        own = (
            part.left(factor, subtract=True) if computes_left else part.right(factor, subtract=True)
            for part, factor in zip(matrices, known, strict=True)
        )
        side = 0 if computes_left else 1
        shapes = [part.factor(rank, side) for part in matrices]
        shapes += [part.shape for part in vectors]
        sent = chain(own, (part.exact() for part in vectors))
        reduced = all_reduced("factors", shapes, sent, bucket, workers)
        kept = self.lefts if computes_left else self.rights
        for part, factor, new in zip(matrices, known, reduced[: len(matrices)], strict=True):
            keep(kept, part.name, new)
            part.set_mean(*((new, factor) if computes_left else (factor, new)))
        for part, exact in zip(vectors, reduced[len(matrices) :], strict=True):
            part.set_exact_mean(exact)
        return Reduced(mean, unsent=bucket.grad)

    def elements(self, shape: Size, step: int) -> int:
        """Return the elements that a step all-reduces for such a gradient, if `rank` is set."""
        if len(shape) < 2:
            return shape.numel()
        sides = shape[0], shape[1:].numel()
        return min(self.rank or 0, *sides) * sides[step % 2]

    def _rank(self, parts: list[Part], density: float) -> int:
        """Return `rank`, or the rank whose mean volume over two steps is nearest to `density`."""
        if self.rank is not None:
            return self.rank
        target = density * sum(part.shape.numel() for part in parts)
        return nearest_rank(
            target, most_rank(parts), lambda rank: sum(_volume(part, rank) for part in parts)
        )

    def _known(self, part: Part, rank: int, step: int) -> Tensor:
        """Return the factor that this step makes orthonormal: Q, [r, m], at even steps, else P."""
        kept, side = (self.rights, 1) if step % 2 == 0 else (self.lefts, 0)
        last = kept.get(part.name) if self.reuse else None
        key = (self.seed, step, *part.name.encode())
        return resized(last, part.rank(rank), part.shape[side], key, part.mean.device)


def _volume(part: Part, rank: int) -> float:
    """Return the elements a worker contributes for `part`, averaged over two steps."""
    return part.rank(rank) * sum(part.shape) / 2 if part.is_matrix else part.shape.numel()
