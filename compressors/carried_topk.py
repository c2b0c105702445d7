"""Top-k by a threshold that is carried over from step to step: one pass, and no search.

That the threshold of one step serves the next when it follows the count is from Ok-Topk (Li &
Hoefler, 2022); the correction is ours. If K of n entries reached t, and k = density n are wanted,
t sqrt(ln(n / k) / ln(n / K)) is next: right for a normal gradient, and half of the way for a
Laplace one or a heavier tail. The first threshold, and one after which K is not in [low k, high k],
is from a sample, as in `sampled_topk`. No more than `capacity` k entries are sent, of more the
largest: the others stay in the residual. Zeros are not sent. Meant for `error_feedback: true`.

Workers tell each other K and send that many entries. Filled up to the capacity they would not have
to tell; that is fewer bytes only where (capacity - 1) k is below 4.

On a GPU nothing waits for the host: every threshold is from a sample, the capacity is always sent,
filled up with zeros, and of too many entries those of lowest position are.
"""

from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.kernels import gpu
from compressors.rng import number
from compressors.sampled_topk import LEAST_RANK, estimate
from compressors.sparse import average, erase_, index_dtype, put_back_, see_taken_out
from compressors.topk_select import Entries, add_reaching_, largest_of


class Threshold(NamedTuple):
    """A magnitude, and the share of a bucket that reached it."""

    value: float
    share: float


@dataclass
class CarriedTopK(Compressor):
    """Keeps the threshold of every bucket; a new one when DDP lays out its buckets anew."""

    sends_positions = True
    adds = True
    checks = True
    low: float = 0.5  # fewer entries than low k: a new sample; in (0, 1)
    high: float = 2.0  # more entries than high k: a new sample; > 1
    capacity: float = 1.25  # entries sent at most, as a multiple of k, >= 1
    seed: int = 0  # the samples follow from (seed, step, bucket, rank)
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8
    thresholds: dict[tuple[str, ...], Threshold] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        for key, value, good, allowed in (
            ("low", self.low, 0 < self.low < 1, "in (0, 1)"),
            ("high", self.high, 1 < self.high < inf, "> 1"),
            ("capacity", self.capacity, 1 <= self.capacity < inf, ">= 1"),
        ):
            if not good:
                raise ValueError(f"{key} must be {allowed}, got {value}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean, [n], of every worker's entries of the gradient that reach its own threshold.

        With K entries, K <= max(1, floor(capacity k)), a worker contributes 8K bytes (12K with
        int64) to an all-gather. `unsent` is the gradient, zero where it was sent.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        k, key = max(1, int(density * n)), (bucket.step, bucket.index, workers.rank)
        taken = self.taken_on_gpu if grad.is_cuda else self._taken
        values, index = taken(bucket, k, key)
        see_taken_out(bucket, values, index)
        if grad.is_cuda:  # it may be among those that found no room
            bucket.see(float(grad.sum()))
        is_zero = bucket.may_clear and not grad.is_cuda
        mean = average(values, index.to(self._wire_dtype), n, workers, bucket.room(), is_zero)
        return Reduced(mean, unsent=grad)

    def taken_on_gpu(self, bucket: Bucket, k: int, key: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Values and positions of about k entries, [capacity k] with zeros at the end."""
        share = k / bucket.grad.numel()
        threshold = self._sampled(bucket.grad, share, key, bucket.added)
        found = gpu.select_(bucket.grad, threshold, int(self.capacity * k), bucket.added)
        return found.values, found.where

    def _taken(self, bucket: Bucket, k: int, key: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Values and positions of about k entries, [K]."""
        grad, most = bucket.grad, int(self.capacity * k)
        found = self._reaching(bucket, k, key)
        if found.values.numel() > most:
            put_back_(grad, found)
            found = largest_of(found, most)
            erase_(grad, found.index)
        return found.values, found.index

    def _reaching(self, bucket: Bucket, k: int, key: tuple[int, ...]) -> Entries:
        """About k entries of the gradient, taken out of it, by position. Adds `added`."""
        grad, n = bucket.grad, bucket.grad.numel()
        known = self._known(bucket.names)
        value = None if known is None else moved(known, k / n)
        if value is None:
            threshold = self._sampled(grad, k / n, key, bucket.added)
        else:
            threshold = torch.tensor(value)
        found = add_reaching_(grad, threshold, bucket.added, bucket.may_clear, erase=True)
        too_few = (
            found.values.numel() < self.low * k and value != 0
        )  # what is zero lets everything pass
        if value is not None and (too_few or found.values.numel() > self.high * k):
            put_back_(grad, found)
            threshold = self._sampled(grad, k / n, key)
            found = add_reaching_(grad, threshold, erase=True)
        self.thresholds[bucket.names] = Threshold(float(threshold), found.values.numel() / n)
        return found

    def _known(self, names: tuple[str, ...]) -> Threshold | None:
        """The threshold of a bucket; of one that is new, its parameters' old buckets go."""
        if names not in self.thresholds:
            for old in [old for old in self.thresholds if set(old) & set(names)]:
                del self.thresholds[old]
        return self.thresholds.get(names)

    def _sampled(
        self, grad: Tensor, share: float, key: tuple[int, ...], added: Tensor | None = None
    ) -> Tensor:
        start = number(self.seed, *key)
        return estimate(grad, share, int(LEAST_RANK / share), start, added)


def moved(known: Threshold, share: float) -> float | None:
    """The magnitude that `share` in (0, 1] is expected to reach; None if `known` cannot tell."""
    if share == 1:
        return 0.0
    if not 0 < known.share < 1:
        return None
    return known.value * sqrt(log(share) / log(known.share))
