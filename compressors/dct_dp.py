"""DCT-DP: send all entries above a threshold that is kept for many steps (Gupta et al., 2021).

This is Algorithm 1 of dynamic communication thresholding. Every `lifespan` steps, the threshold of
each parameter is set so that density x n of its n entries reach it. In between, each step sends the
entries that reach it, but never zeros. Their number drifts; `achieved_density` in steps.csv records
it. Use it with `error_feedback: true`.

The first threshold comes from a gradient without residual, and is far too small once there is one.
The paper keeps it as long as all others (`refresh: paper`). With a lifespan of 1000, two to four
times the density is sent all that time. `refresh: warmup` computes it at steps 10, 30, 100 and 300
too.

The paper compresses fully connected layers for a parameter server. We differ:
- workers gather the entries and average them;
- all parameters are compressed, unless `whole` names them; these send everything but zeros;
- we keep n - floor(n (1 - density)) entries, as the printed index is undefined for small layers;
- a threshold is also computed when the density has changed, so that a controller has an effect;
- it is also computed when it is zero, since every entry would reach it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import add_and_take_reaching_each, scatter_mean
from compressors.sparse import index_dtype
from compressors.topk_select import kept, kth_sampled, reached_at, runs

WARMUP = (0, 10, 30, 100, 300)  # steps: while the residual grows
REFRESHES = ("paper", "warmup")
SHARE, FEWEST = 100, 1000  # one in SHARE entries is sampled, at least FEWEST


class Threshold(NamedTuple):
    """Threshold of one parameter, float32 [], with the density it was computed for."""

    value: Tensor
    density: float


@dataclass
class DCTDP(Compressor):
    """Compressor that sends entries above a threshold, which it keeps by parameter name."""

    shares_state = True
    lifespan: int = 1000  # steps between two computations of a threshold, >= 1
    refresh: str = "paper"  # paper: every lifespan, from the first on | warmup: and more early
    selection: str = "partition"  # of a threshold: sort (paper) | partition | sample (of 1 %)
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8
    whole: Sequence[str] = ()  # ends of names of parameters, as in `embedding.weight`
    thresholds: dict[str, Threshold] = field(default_factory=dict, init=False, repr=False)
    sent_entries: int = field(default=0, init=False)  # of the last bucket, but for the `whole`
    sent_of: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        if self.lifespan < 1:
            raise ValueError(f"lifespan must be >= 1, got {self.lifespan}")
        for key, choices in (("refresh", REFRESHES), ("selection", tuple(SELECTIONS))):
            if (value := getattr(self, key)) not in choices:
                raise ValueError(f"{key} must be one of {', '.join(choices)}, got {value!r}")

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        return torch.empty((), device="meta")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean, [n], of every worker's entries that reach its own thresholds.

        With K entries, 0 <= K <= n, a worker contributes 8K bytes (12K with int64) to an
        all-gather. `unsent` is the gradient, zeroed where it was sent.
        """
        for name, part in zip(bucket.names, bucket.split(), strict=True):
            self._renew(name, part, density, bucket.step)
        thresholds = [self.thresholds[name].value for name in bucket.names]
        index, values = add_and_take_reaching_each(bucket.buffers, thresholds)
        counts = self._counts(bucket, index)  # before others may write over it
        mean = scatter_mean(bucket.buffers, values, index.to(self._wire_dtype), workers)
        self.sent_entries, self.sent_of = counts
        return Reduced(mean, unsent=bucket.grad)

    def searches(
        self, sizes: Mapping[str, int], density: float, step: int
    ) -> Mapping[str, Sequence[int]]:
        due = [size for name, size in sizes.items() if self._is_due(name, density, step)]
        return {self.selection: due}

    def _renew(self, name: str, part: Buffers, density: float, step: int) -> None:
        """Compute the threshold of parameter `name`, [n], if it is due."""
        if self._is_whole(name):
            zero = torch.zeros((), device=part.device)
            self.thresholds[name] = Threshold(zero, density)
        elif self._is_due(name, density, step):
            self.thresholds[name] = Threshold(
                SELECTIONS[self.selection](part.grad, density), density
            )

    def _is_due(self, name: str, density: float, step: int) -> bool:
        if self._is_whole(name):
            return False
        known = self.thresholds.get(name)
        due = step % self.lifespan == 0 or (self.refresh == "warmup" and step in WARMUP)
        return known is None or due or known.density != density or bool(known.value == 0)

    def _counts(self, bucket: Bucket, index: Tensor) -> tuple[int, int]:
        """Return how many entries are sent, and how many there are, in thresholded parameters.

        `index`, [K] ascending, has the sent positions. Parameters in `whole` are not counted, since
        no density applies to them.
        """
        sent, of, first = index.numel(), bucket.n, 0
        for name, size in zip(bucket.names, bucket.sizes, strict=True):
            if self._is_whole(name):
                ends = torch.searchsorted(index, index.new_tensor([first, first + size])).tolist()
                sent, of = sent - (ends[1] - ends[0]), of - size
            first += size
        return sent, of

    def _is_whole(self, name: str) -> bool:
        return name.endswith(tuple(self.whole))


def by_sort(grad: Tensor, density: float) -> Tensor:
    """Return the threshold, float32 [], by sorting all of `grad`, [n]: the paper's way, slowest."""
    ordered = grad.abs().sort().values
    return ordered[grad.numel() - kept(grad.numel(), density)].clone()


def by_sample(grad: Tensor, density: float) -> Tensor:
    """Estimate the threshold, float32 [], from a hundredth of `grad`, [n], or all if small."""
    where = runs(grad.numel(), max(FEWEST, grad.numel() // SHARE))
    kth = kth_sampled(grad, where, kept(where.size, density))
    return torch.tensor(kth, dtype=torch.int32, device=grad.device).view(torch.float32)


SELECTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "sort": by_sort,
    "partition": reached_at,  # found among the largest alone
    "sample": by_sample,
}
