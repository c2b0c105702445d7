"""Low-rank factors of a bucket's matrices: what PowerSGD and ACP-SGD share.

A parameter of two or more dimensions is a matrix [n, m], n its first dimension; any other is a
vector and is not compressed. Factors are held transposed, [r, n] and [r, m]: with r rows instead of
r columns the products take a half to a fifth of the time on a CPU.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Workers
from compressors.rng import generator
from compressors.workspace import workspace


class Part(NamedTuple):
    """One parameter of a bucket: its gradient, and where its mean goes; of one shape.

    [n, m] views where it is a matrix, else [n]. `added` is still to be added to the gradient.
    """

    name: str
    grad: Tensor
    mean: Tensor
    added: Tensor | None = None

    @property
    def is_matrix(self) -> bool:
        return self.grad.dim() == 2

    def rank(self, rank: int) -> int:
        """`rank`, or what the shape allows of it."""
        return min(rank, *self.grad.shape)

    def factor(self, rank: int, side: int) -> Size:
        """Shape of the left factor, of `side` 0, or the right one, of 1."""
        return Size((self.rank(rank), self.grad.shape[side]))

    def summed_(self) -> Tensor:
        """The gradient, `added` to it."""
        return self.grad if self.added is None else self.grad.add_(self.added)

    def settle_(self, exact: Tensor, is_kept: bool) -> None:
        """The mean is `exact`, and all of the gradient was sent."""
        self.mean.copy_(exact)
        if is_kept:
            self.grad.zero_()


def parts_of(bucket: Bucket, mean: Tensor) -> list[Part]:
    """Every parameter of `bucket`; their `mean` are views of `mean`, [n]."""
    shapes = [(p.shape[0], -1) if p.dim() > 1 else p.shape for p in bucket.gradients]
    sizes = [grad.numel() for grad in bucket.gradients]

    def views(flat: Tensor) -> list[Tensor]:
        return [x.view(shape) for x, shape in zip(flat.split(sizes), shapes, strict=True)]

    parts = zip(bucket.names, views(bucket.grad), views(mean), strict=True)
    if bucket.added is None:
        return [Part(*part) for part in parts]
    return [Part(*part, added) for part, added in zip(parts, views(bucket.added), strict=True)]


def nearest_rank(target: float, most: int, volume: Callable[[int], float]) -> int:
    """The rank in [1, most] whose `volume(rank)` is nearest to `target`; the lower of two.

    `volume` must not decrease; then the rank does not either, as the target rises.
    """
    rank = min(most, 1 + bisect_left(range(1, most + 1), target, key=volume))
    if rank > 1 and target - volume(rank - 1) <= volume(rank) - target:
        rank -= 1
    return rank


def most_rank(parts: list[Part]) -> int:
    """The highest rank that any of them has; 1 where there is no matrix."""
    return max([1, *(min(part.grad.shape) for part in parts if part.is_matrix)])


def resized(factor: Tensor | None, rank: int, length: int, key: tuple[int, ...]) -> Tensor:
    """`factor` as [rank, length]: its first rows, and normal ones that follow from `key`."""
    have = 0 if factor is None else factor.shape[0]
    if factor is not None and have >= rank:
        return factor[:rank]
    fresh = torch.randn(rank, length, generator=generator(*key))[have:]
    return fresh if factor is None else torch.cat([factor, fresh.to(factor.device)])


def orthonormal(factor: Tensor) -> Tensor:
    """The rows of `factor`, [r, n] with r <= n, made orthonormal in order, by QR.

    Where a row depends on those before it (all zeros, say), one that is orthogonal takes its place.
    """
    return torch.linalg.qr(factor.t()).Q.t().contiguous()


def all_reduced(
    role: str,
    shapes: list[Size],
    tensors: Iterable[Tensor],
    like: Tensor,
    workers: Workers,
    see: Callable[[float], None] | None = None,
) -> list[Tensor]:
    """Means over workers of `tensors`, of these shapes, by one all-reduce; none for no tensors.

    One is asked for when the last has been copied, and need not be kept. Of the type and where
    `like` is; what is returned may lie in the workspace of `role`. Before, `see` is told their sum.
    """
    if not shapes:
        return []
    sizes = [prod(shape) for shape in shapes]
    flat = workspace(role, sum(sizes), like.dtype, like.device)
    for piece, tensor in zip(flat.split(sizes), tensors, strict=True):
        piece.copy_(tensor.flatten())
    if see is not None:
        see(float(flat.sum()))
    pieces = workers.all_reduce(flat).split(sizes)
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def keep(known: dict[str, Tensor], name: str, factor: Tensor) -> None:
    """Sets `known[name]` to `factor`, in the memory that is there if it fits."""
    if name in known and known[name].shape == factor.shape:
        known[name].copy_(factor)
    else:
        known[name] = factor.clone()


def check_rank(rank: int | None) -> None:
    """Raises ValueError for what is neither null nor a whole number >= 1."""
    whole = isinstance(rank, int) and not isinstance(rank, bool)
    if rank is not None and not (whole and rank >= 1):
        raise ValueError(f"rank must be a whole number >= 1, or null for density's, got {rank!r}")
