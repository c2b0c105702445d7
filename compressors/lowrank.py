"""Low-rank factors of a bucket's matrices, as PowerSGD and ACP-SGD use them.

A parameter of two or more dimensions is a matrix [n, m], n its first dimension. Any other is a
vector and is not compressed. Factors are stored transposed, [r, n] and [r, m]. With r rows instead
of r columns, products take a half to a fifth of the time on a CPU.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Workers
from compressors.buffers import Buffers
from compressors.matmul import left_factor_, multiply_, right_factor_, subtract_
from compressors.rng import generator
from compressors.workspace import workspace


class Part(NamedTuple):
    """One parameter of a bucket: M [n, m] if it is a matrix, else of its own shape."""

    name: str
    buffers: Buffers
    mean: Tensor  # where its mean goes, of its shape

    @property
    def shape(self) -> Size:
        return self.mean.shape

    @property
    def is_matrix(self) -> bool:
        return self.mean.dim() == 2

    def rank(self, rank: int) -> int:
        """Return `rank`, limited by the shape."""
        return min(rank, *self.shape)

    def factor(self, rank: int, side: int) -> Size:
        """Return the shape of the left factor (`side` 0) or the right one (1)."""
        return Size((self.rank(rank), self.shape[side]))

    def exact(self) -> Tensor:
        """Return the gradient itself."""
        return self.buffers.grad.view(self.shape)

    def left(self, right: Tensor, subtract: bool = False) -> Tensor:
        """Return P = M Q, [r, n], for `right` Q, [r, m]; `subtract` removes P Q^T from M."""
        subtracts = subtract and self.buffers.needs_residual
        return left_factor_(*self._matrices(right), subtract=subtracts)

    def right(self, left: Tensor, subtract: bool = False) -> Tensor:
        """Return Q = M^T P, [r, m], for P in `left`, [r, n]; `subtract` as for the left factor."""
        matrices = self._matrices(left)
        right = right_factor_(*matrices)
        if subtract and self.buffers.needs_residual:
            subtract_(matrices[0], left, right)
        return right

    def set_mean(self, left: Tensor, right: Tensor, subtract: bool = False) -> None:
        """Set the mean to P Q^T; `subtract` as for the factors."""
        subtracts = subtract and self.buffers.needs_residual
        multiply_(self.mean, left, right, self.exact() if subtracts else None)

    def set_exact_mean(self, mean: Tensor) -> None:
        """Set the mean to `mean`. All of the gradient was sent."""
        self.mean.copy_(mean)
        if self.buffers.needs_residual:
            self.buffers.total.zero_()

    def _matrices(self, factor: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return matrix M, `factor`, and the matrix still to be added to M, or None."""
        addend = self.buffers.take_addend()
        other = None if addend is None else addend.view(self.shape)
        return self.buffers.total.view(self.shape), factor, other


def parts_of(bucket: Bucket, mean: Tensor) -> list[Part]:
    """Return every parameter of `bucket`. Their `mean` are views of `mean`, [n].

    A parameter without elements is a vector, whatever its shape: it has no rank.
    """
    means = [
        part.view(shape[0], -1) if len(shape) > 1 and part.numel() else part.flatten()
        for part, shape in zip(mean.split(bucket.sizes), bucket.shapes, strict=True)
    ]
    return [Part(*part) for part in zip(bucket.names, bucket.split(), means, strict=True)]


def nearest_rank(target: float, most: int, volume: Callable[[int], float]) -> int:
    """Return the rank in [1, most] whose `volume(rank)` is nearest to `target`, or the lower.

    `volume` must not decrease. Then the rank does not decrease as the target rises.
    """
    rank = min(most, 1 + bisect_left(range(1, most + 1), target, key=volume))
    if rank > 1 and target - volume(rank - 1) <= volume(rank) - target:
        rank -= 1
    return rank


def most_rank(parts: list[Part]) -> int:
    """Return the highest rank of any part, or 1 without matrices."""
    return max([1, *(min(part.shape) for part in parts if part.is_matrix)])


def resized(
    factor: Tensor | None, rank: int, length: int, key: tuple[int, ...], device: torch.device
) -> Tensor:
    """Resize `factor` to [rank, length]. New rows are standard normal, seeded by `key`.

    The numbers are equal on any `device`. On torch's meta device there are no values.
    """
    have = 0 if factor is None else factor.shape[0]
    if factor is not None and have >= rank:
        return factor[:rank].to(device)
    if device.type == "meta":
        return torch.empty(rank, length, device=device)
    fresh = torch.randn(rank, length, generator=generator(*key))[have:].to(device)
    return fresh if factor is None else torch.cat([factor.to(device), fresh])


def orthonormal(factors: list[Tensor]) -> list[Tensor]:
    """Make the rows of each factor, [r, n] with r <= n, orthonormal in order, by QR.

    A row that depends on earlier ones (all zeros, say) is replaced by an orthogonal one. Factors of
    one shape share a call, since calls cost time on a GPU.
    """
    found: dict[int, Tensor] = {}
    for shape in {factor.shape for factor in factors}:
        alike = [at for at, factor in enumerate(factors) if factor.shape == shape]
        together = torch.stack([factors[at] for at in alike])
        found.update(zip(alike, torch.linalg.qr(together.mT).Q.mT.contiguous(), strict=True))
    return [found[at] for at in range(len(factors))]


def all_reduced(
    role: str, shapes: list[Size], tensors: Iterable[Tensor], bucket: Bucket, workers: Workers
) -> list[Tensor]:
    """Return the means over workers of `tensors`, of these shapes, by one all-reduce.

    Each tensor is requested when the previous one has been copied, and need not be kept. They
    derive from the gradient of `bucket`, which is finite if their sum is. The result may lie in the
    workspace of `role`.
    """
    if not shapes:
        return []
    sizes = [prod(shape) for shape in shapes]
    flat = workspace(role, sum(sizes), torch.float32, bucket.device)
    for piece, tensor in zip(flat.split(sizes), tensors, strict=True):
        piece.copy_(tensor.flatten())
    bucket.check_finite(float(flat.sum()))
    pieces = workers.all_reduce(flat).split(sizes)
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def keep(known: dict[str, Tensor], name: str, factor: Tensor) -> None:
    """Set `known[name]` to `factor`, reusing the memory if it fits."""
    if name in known and known[name].shape == factor.shape:
        known[name].copy_(factor)
    else:
        known[name] = factor.clone()


def factor_like(kept: Tensor, shape: Size, rank: int | None, side: int) -> Tensor:
    """Return the left (`side` 0) or right factor of a parameter of `shape`, on the meta device.

    Where `rank` is null, the rank is that of `kept`, as far as the shape allows.
    """
    sides = (shape[0], shape[1:].numel()) if len(shape) > 1 else (0, 0)
    rows = rank or max(1, kept.shape[0] if kept.dim() else 0)
    return torch.empty(min(rows, *sides), sides[side], device="meta")


def check_rank(rank: int | None) -> None:
    """Raise ValueError unless `rank` is null or a whole number >= 1."""
    whole = isinstance(rank, int) and not isinstance(rank, bool)
    if rank is not None and not (whole and rank >= 1):
        raise ValueError(f"rank must be a whole number >= 1, or null for density's, got {rank!r}")
