"""Sampled top-k: a threshold from a sample, corrected until about k entries pass (DGC; Lin, 2018).

This is the low-overhead top-k of DC2 (Abdelmoniem & Canini, 2021), with the constants of
sands-lab/grace. It sends between low k and high k entries, where k = density n. We differ where
that code can go wrong:
- the sample consists of runs of 32 elements, evenly spaced from a random start. At 25 M elements
  this takes a fifth of the time of single ones. It has at least 160/density elements (8 % error if
  all were independent);
- zeros are not sent, so a gradient with few other entries may send fewer than low k;
- the k largest are sent if the count jumps over the range (equal magnitudes), or is above it after
  `rounds` corrections.
"""

from dataclasses import dataclass

from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import add_and_take_reaching, sampled_threshold, scatter_mean
from compressors.rng import number
from compressors.sparse import erase_, index_dtype, put_back_
from compressors.topk_select import (
    LEAST_RANK,
    Entries,
    add_reaching_,
    at_least,
    largest,
    largest_of,
    some,
)


@dataclass
class SampledTopK(Compressor):
    share: float = 0.01  # of the elements that is sampled, in (0, 1]
    rounds: int = 10  # corrections of the threshold at most
    low: float = 0.7  # below low k entries the threshold is multiplied by low, in (0, 1)
    high: float = 1.3  # above high k entries the threshold is multiplied by high, > 1
    seed: int = 0  # the sample follows from (seed, step, bucket, rank)
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        for key, value, good, allowed in (
            ("share", self.share, 0 < self.share <= 1, "in (0, 1]"),
            ("rounds", self.rounds, self.rounds >= 0, ">= 0"),
            ("low", self.low, 0 < self.low < 1, "in (0, 1)"),
            ("high", self.high, self.high > 1, "> 1"),
        ):
            if not good:
                raise ValueError(f"{key} must be {allowed}, got {value}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean, [n], of every worker's entries above its own threshold.

        With K entries, 1 <= K <= high max(1, floor(density n)), a worker contributes 8K bytes (12K
        with int64) to an all-gather. `unsent` is the gradient, zeroed where it was sent.
        """
        key = (bucket.step, bucket.index, workers.rank)
        index, values = self.take(bucket.buffers, density, key)
        mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=bucket.grad)

    def most(self, n: int, density: float) -> int:
        """Return the most entries that `take` may return out of n."""
        return min(n, int(self.high * max(1, int(density * n))))

    def take(self, buffers: Buffers, density: float, key: tuple[int, ...]) -> Entries:
        """Take about k = density n entries out of the gradient, [n], which is zeroed there.

        The seed and `key` determine the sample. The thread's next search overwrites the result.
        """
        k = max(1, int(density * buffers.n))
        size = max(int(self.share * buffers.n), int(LEAST_RANK / density))
        threshold = sampled_threshold(buffers, density, size, number(self.seed, *key))
        found = add_and_take_reaching(buffers, threshold)
        if self.low * k <= found.values.numel() <= self.high * k and found.values.numel():
            return found
        put_back_(grad := buffers.grad, found)
        found = self._corrected(grad, found, threshold, k)
        erase_(grad, found.index)
        return found

    def _corrected(self, grad: Tensor, found: Entries, threshold: Tensor, k: int) -> Entries:
        """Return between low k and high k entries, starting from those `found` with `threshold`."""
        plenty = None  # what passed the highest threshold that was too low
        for _ in range(self.rounds):
            if found.values.numel() > self.high * k:
                plenty, threshold = (
                    Entries(*(part.clone() for part in found)),
                    threshold * self.high,
                )
                found = some(plenty, at_least(plenty.values, threshold))
            elif found.values.numel() < self.low * k and plenty is None:
                threshold = threshold * self.low
                found = add_reaching_(grad, threshold)
            else:
                break
        if found.values.numel() > self.high * k:
            plenty = Entries(*(part.clone() for part in found))
        if plenty is not None and not self.low * k <= found.values.numel() <= self.high * k:
            return largest_of(plenty, k)
        if found.values.numel():
            return found
        index = largest(grad, 1)
        return Entries(index, grad.index_select(0, index))
