"""Sampled top-k: a threshold from a sample, corrected until about k entries pass (DGC; Lin, 2018).

The low-overhead top-k of DC2 (Abdelmoniem & Canini, 2021), with the constants of sands-lab/grace.
It sends between low k and high k entries, k = density n. We differ where that code can go wrong:
- the sample is runs of 32 elements, evenly spaced from a random start: at 25 M it takes a fifth of
  the time of single ones. It has 160/density elements at least (8 % error were all independent);
- zeros are not sent, so that a gradient with few other entries sends fewer than low k;
- where the count jumps over the range (equal magnitudes), or `rounds` end above it, the k largest
  are sent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.rng import number
from compressors.sparse import average, erase_, index_dtype, put_back_, see_taken_out
from compressors.topk_select import (
    Entries,
    add_reaching_,
    at_least,
    kth_sampled,
    largest,
    largest_of,
    runs,
    sample,
    some,
)

LEAST_RANK = 160  # of the threshold in the sample; its count is then good to 1 / sqrt(160) = 8 %


@dataclass
class SampledTopK(Compressor):
    sends_positions = True
    adds = True
    checks = True
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
        """Mean, [n], of every worker's entries of the gradient above its own threshold.

        With K entries, 1 <= K <= high max(1, floor(density n)), a worker contributes 8K bytes (12K
        with int64) to an all-gather. `unsent` is the gradient, zero where it was sent.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        key = (bucket.step, bucket.index, workers.rank)
        index, values = self.take_(grad, density, key, bucket.added, bucket.may_clear)
        see_taken_out(bucket, values, index)
        wire = index.to(self._wire_dtype)
        mean = average(values, wire, n, workers, bucket.room(), bucket.may_clear)
        return Reduced(mean, unsent=grad)

    def most(self, n: int, density: float) -> int:
        """Entries that `take_` may return of n."""
        return min(n, int(self.high * max(1, int(density * n))))

    def take_(
        self,
        grad: Tensor,
        density: float,
        key: tuple[int, ...],
        added: Tensor | None = None,
        clear: bool = False,
    ) -> Entries:
        """About k = density n entries of `grad`, [n], which is set to zero there.

        With `added`, of grad += added; `clear` then sets `added` to zero. The sample follows from
        the seed and `key`. What is returned lies in this thread's memory until it searches again.
        """
        start = number(self.seed, *key)
        k = max(1, int(density * grad.numel()))
        size = max(int(self.share * grad.numel()), int(LEAST_RANK / density))
        threshold = estimate(grad, density, size, start, added)
        found = add_reaching_(grad, threshold, added, clear, erase=True)
        if self.low * k <= found.values.numel() <= self.high * k and found.values.numel():
            return found
        put_back_(grad, found)
        found = self._corrected(grad, found, threshold, k)
        erase_(grad, found.index)
        return found

    def _corrected(self, grad: Tensor, found: Entries, threshold: Tensor, k: int) -> Entries:
        """Between low k and high k entries, from those `found` with `threshold`."""
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


def estimate(
    x: Tensor, density: float, size: int, start: int, added: Tensor | None = None
) -> Tensor:
    """Magnitude that a sample of `x`, or of x + added, exceeds as often as `density`; float32 [].

    The sample is `size` of the n elements, or all; `start` shifts it.
    """
    where = runs(x.numel(), size, start)
    rank = max(1, int(density * where.size))
    if x.is_cuda:  # the host need not know, nor wait
        return sample(x, where, added).topk(rank).values[-1].view(torch.float32)
    kth = kth_sampled(x, where, rank, added)
    return torch.tensor(kth, dtype=torch.int32).view(torch.float32)
