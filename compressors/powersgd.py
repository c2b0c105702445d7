"""PowerSGD: every matrix as a product of two thin factors, by one power iteration (Vogels, 2019).

Algorithms 1 and 2 do this for each bucket:
1. Compute P = M Q, average it over workers, and make it orthonormal.
2. Compute Q = M^T P, and average it over workers.
3. The result is P Q^T. `unsent` is M - P Q^T with these factors, as in the paper and in torch's
  powerSGD_hook.

Vectors are not compressed and travel with P. One bucket that holds the whole model is the paper's
form, with two all-reduces a step. Use it with `error_feedback: true`. We differ:
- P is made orthonormal by QR, as in ACP-SGD's experiments. Zeros and dependent columns then need no
  case of their own; Gram-Schmidt would divide by zero;
- the columns of a kept Q are divided by their largest magnitude. This changes the result by
  rounding only, and keeps the factors of tiny and huge gradients from underflow and overflow.

Workers get equal bits if they run the same kernels, on processors of one kind.
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
class PowerSGD(Compressor):
    """Compressor that sends factors P and Q of every matrix. It keeps Q by parameter name."""

    needs_shapes = True
    by_shape = True
    pushes = False
    waits = True
    phases = (1, 1, 1)  # a product each
    rank: int | None = 4  # of the factors; null: that whose bytes are nearest to density x dense
    reuse: bool = True  # start from the last Q; false: from a new random one at every step
    min_compression_rate: float = 1.0  # a matrix whose factors save less is sent whole, >= 0
    vectors_apart: bool = False  # in an all-reduce of their own, as torch's hook has them
    seed: int = 0  # the random Q follow from (seed, step, parameter), equal for all workers
    uniform_density: bool = field(init=False)
    has_level: bool = field(init=False)
    queries: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # [r, m]

    def __post_init__(self) -> None:
        check_rank(self.rank)
        if not self.min_compression_rate >= 0:
            raise ValueError(f"min_compression_rate must be >= 0, got {self.min_compression_rate}")
        self.uniform_density = self.has_level = self.rank is None

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        return factor_like(kept, shapes[0], self.rank, side=1)

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean gradient, [n], with matrices approximated by the factors.

        Two all-reduces of 4 (sum of r n, and V) and 4 (sum of r m) bytes, or three, with V apart.
        The sums are over matrices [n, m] of ranks r = min(rank, n, m), and V counts all other
        elements. `density` matters only if `rank` is null. `unsent` is `bucket.grad`.
        """
        parts = parts_of(bucket, mean := bucket.empty_mean())
        rank = self._rank(parts, density)
        matrices = [part for part in parts if self._saves(part, rank)]
        vectors = [part for part in parts if not self._saves(part, rank)]
        lefts, exacts = self._lefts(matrices, vectors, rank, bucket, workers)
        lefts = orthonormal(lefts)
        shapes = [part.factor(rank, 1) for part in matrices]
        own = (part.right(left) for part, left in zip(matrices, lefts, strict=True))
        rights = all_reduced("right factors", shapes, own, bucket, workers)
        for part, left, right in zip(matrices, lefts, rights, strict=True):
            part.set_mean(left, right, subtract=True)
            keep(self.queries, part.name, _scaled(right))
        for part, exact in zip(vectors, exacts, strict=True):
            part.set_exact_mean(exact)
        return Reduced(mean, unsent=bucket.grad)

    def _lefts(
        self, matrices: list[Part], vectors: list[Part], rank: int, bucket: Bucket, workers: Workers
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return means over workers of P = M Q, and of the vectors, by one all-reduce or two."""
        shapes = [part.factor(rank, 0) for part in matrices]
        own = (part.left(self._query(part, rank, bucket.step)) for part in matrices)
        beside = [part.shape for part in vectors]
        exact = (part.exact() for part in vectors)
        if self.vectors_apart:
            lefts = all_reduced("left factors", shapes, own, bucket, workers)
            return lefts, all_reduced("vectors", beside, exact, bucket, workers)
        both = all_reduced("left factors", shapes + beside, chain(own, exact), bucket, workers)
        return both[: len(matrices)], both[len(matrices) :]

    def _rank(self, parts: list[Part], density: float) -> int:
        if self.rank is not None:
            return self.rank
        target = density * sum(part.shape.numel() for part in parts)
        return nearest_rank(
            target, most_rank(parts), lambda rank: sum(self._volume(part, rank) for part in parts)
        )

    def _volume(self, part: Part, rank: int) -> int:
        """Return the elements this worker contributes for `part`."""
        if not self._saves(part, rank):
            return part.shape.numel()
        return part.rank(rank) * sum(part.shape)

    def _saves(self, part: Part, rank: int) -> bool:
        if not part.is_matrix:
            return False
        factors = part.rank(rank) * sum(part.shape)
        return factors * self.min_compression_rate < part.shape.numel()

    def _query(self, part: Part, rank: int, step: int) -> Tensor:
        """Return Q to start from, [r, m]. Missing rows are drawn at random."""
        known = self.queries.get(part.name) if self.reuse else None
        key = (self.seed, step, *part.name.encode())
        return resized(known, part.rank(rank), part.shape[1], key, part.mean.device)


def _scaled(factor: Tensor) -> Tensor:
    """Return `factor`, [r, m], with every row divided by its largest magnitude."""
    largest = factor.abs().amax(1, keepdim=True)
    return factor / largest.where(largest > 0, 1)
