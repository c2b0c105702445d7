"""QSGD: stochastic rounding to a few levels of a norm (Alistarh et al., 2017, section 3.1).

An element v of a block becomes norm * sign(v) * l / s, where l is in 0..s and the expectation is v.
With s = 2^(bits - 1) - 1, sign and level fit in `bits` bits. As in the paper's experiments, blocks
have 512 elements and the norm is the largest magnitude (`max`). The norm of its theory is `l2`,
with more variance. Codes have a fixed number of bits; we leave out the paper's Elias coding.

The result is unbiased, so use `error_feedback: false`. If the error exceeds the gradient, feedback
diverges. On normal gradients we measured this for 2 to 4 bits with l2, and for 2 bits with max.
"""

from dataclasses import dataclass

import torch

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_round, mean_of_rounded
from compressors.stochastic import NORMS, Grid

FEWEST_BITS, MOST_BITS = 2, 8
FLOAT_BITS = 32


@dataclass
class QSGD(Compressor):
    uniform_density = True  # of the bits, so that all send as much
    bits: int = 8  # an element has, at most; 2 to 8
    block: int = 512  # elements that share a norm
    norm: str = "max"
    seed: int = 0  # random numbers follow from (seed, step, bucket, rank)

    def __post_init__(self) -> None:
        if not FEWEST_BITS <= self.bits <= MOST_BITS:
            raise ValueError(f"bits must be in [{FEWEST_BITS}, {MOST_BITS}], got {self.bits}")
        if self.block < 1:
            raise ValueError(f"block must be >= 1, got {self.block}")
        if self.norm not in NORMS:
            raise ValueError(f"norm must be {' or '.join(NORMS)}, got {self.norm!r}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of all gradients, [n], in floor(32 density) bits, of 2 to `bits`.

        With b bits each worker contributes ceil(b n / 8) + 4 ceil(n / block) bytes to an
        all-gather. `unsent` is `bucket.grad`, the gradient less what was sent.
        """
        n = bucket.n
        width = max(FEWEST_BITS, min(self.bits, int(FLOAT_BITS * density)))
        grid = Grid(torch.arange(self.block, n + self.block, self.block).clamp_(max=n), width)
        steps = torch.empty(grid.ends.numel(), device=bucket.device)
        key = (self.seed, bucket.step, bucket.index, workers.rank)
        packed = add_and_round(bucket.buffers, grid, steps, key, self.norm)
        rounded = workers.all_gather(packed, steps, equal=True)
        return Reduced(mean_of_rounded(bucket.buffers, grid, rounded), unsent=bucket.grad)
