"""Top-k by a threshold that is carried over from step to step: one pass, and no search.

Ok-Topk (Li & Hoefler, 2022) showed that a step can use the last threshold if it follows the count.
The correction is ours. Suppose that K of n entries reached t, and k = density n are wanted. The
next threshold is t sqrt(ln(n / k) / ln(n / K)). This is right for a normal gradient, and goes half
of the way for a Laplace one or a heavier tail.

The first threshold is from a sample, as in `sampled_topk`. So is the next one if K was not in [low
k, high k]. At most `capacity` k entries are sent, the largest ones; the others stay in the
residual. Zeros are not sent. Use it with `error_feedback: true`.

Workers tell each other K, and send that many entries. Filling up to the capacity would make this
unnecessary, but saves bytes only if (capacity - 1) k is below 4.

On a GPU nothing waits for the host. Every threshold is from a sample there, and the capacity is
always sent, filled up with zeros. Of too many entries, those of lowest position are sent.
"""

from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import (
    add_and_take_capacity,
    add_and_take_reaching,
    sampled_threshold,
    scatter_mean,
)
from compressors.rng import number
from compressors.sparse import erase_, index_dtype, put_back_
from compressors.topk_select import LEAST_RANK, Entries, largest_of


class Threshold(NamedTuple):
    """A magnitude, and the share of a bucket that reached it."""

    value: float
    share: float


@dataclass
class CarriedTopK(Compressor):
    """Compressor that keeps the threshold of every bucket until DDP rebuilds its buckets."""

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
        """Return the mean, [n], of every worker's entries that reach its own threshold.

        With K entries, K <= max(1, floor(capacity k)), a worker contributes 8K bytes (12K with
        int64) to an all-gather. `unsent` is the gradient, zeroed where it was sent.
        """
        k, key = max(1, int(density * bucket.n)), (bucket.step, bucket.index, workers.rank)
        taken = self.taken_on_gpu if bucket.device.type == "cuda" else self._taken
        index, values = taken(bucket, k, key)
        mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=bucket.grad)

    def taken_on_gpu(self, bucket: Bucket, k: int, key: tuple[int, ...]) -> Entries:
        """Take about k entries, [capacity k], padded with zeros."""
        threshold = self._sampled(bucket.buffers, k / bucket.n, key)
        return add_and_take_capacity(bucket.buffers, threshold, int(self.capacity * k))

    def _taken(self, bucket: Bucket, k: int, key: tuple[int, ...]) -> Entries:
        """Take about k entries out of the gradient and return them, [K]."""
        found, most = self._reaching(bucket, k, key), int(self.capacity * k)
        if found.values.numel() > most:
            put_back_(bucket.grad, found)
            found = largest_of(found, most)
            erase_(bucket.grad, found.index)
        return found

    def _reaching(self, bucket: Bucket, k: int, key: tuple[int, ...]) -> Entries:
        """Take the entries out of the gradient that reach a threshold, about k, by position.

        The bucket's last threshold is used, or a sampled one if the last took too few or too many.
        The threshold is kept for the next step.
        """
        buffers, share = bucket.buffers, k / bucket.n
        known = self._known(bucket.names)
        value = None if known is None else moved(known, share)
        if value is None:
            threshold = self._sampled(buffers, share, key)
        else:
            threshold = torch.tensor(value)
        found = add_and_take_reaching(buffers, threshold)
        too_few = found.values.numel() < self.low * k and value != 0  # at 0 everything passes
        if value is not None and (too_few or found.values.numel() > self.high * k):
            put_back_(bucket.grad, found)
            threshold = self._sampled(buffers, share, key)
            found = add_and_take_reaching(buffers, threshold)
        self.thresholds[bucket.names] = Threshold(float(threshold), found.values.numel() / bucket.n)
        return found

    def _known(self, names: tuple[str, ...]) -> Threshold | None:
        """Return a bucket's threshold; for a new bucket, drop those of its parameters first."""
        if names not in self.thresholds:
            for old in [old for old in self.thresholds if set(old) & set(names)]:
                del self.thresholds[old]
        return self.thresholds.get(names)

    def _sampled(self, buffers: Buffers, share: float, key: tuple[int, ...]) -> Tensor:
        return sampled_threshold(buffers, share, int(LEAST_RANK / share), number(self.seed, *key))


def moved(known: Threshold, share: float) -> float | None:
    """Return the magnitude that `share` in (0, 1] should reach, or None if `known` cannot tell."""
    if share == 1:
        return 0.0
    if not 0 < known.share < 1:
        return None
    return known.value * sqrt(log(share) / log(known.share))
