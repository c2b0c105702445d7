"""QSGD: stochastic rounding to a few levels of a norm (Alistarh et al., 2017, section 3.1).

An element v of a block becomes norm * sign(v) * l / s, l in 0..s, with expectation v; s =
2^(bits - 1) - 1, so that sign and level fit in `bits` bits. As in the paper's experiments blocks
have 512 elements and the norm is the largest magnitude (`max`; `l2` is that of its theory, with
more variance). Codes have a fixed number of bits; the paper's Elias coding is not done. The result
is unbiased and is meant for `error_feedback: false`: where its error exceeds the gradient, feedback
diverges (measured on normal gradients: 2 to 4 bits with l2, 2 bits with max).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from compressors.base import Bucket, Reduced, Workers
from compressors.packing import pack, unpack
from compressors.stochastic import add_levels_, rounded

FEWEST_BITS, MOST_BITS = 2, 8
FLOAT_BITS = 32
NORMS = ("max", "l2")


@dataclass
class QSGD:
    uniform_density: ClassVar[bool] = True  # of the bits, so that all send as much
    bits: int = 8  # an element has, at most; 2 to 8
    block: int = 512  # elements that share a norm
    norm: str = "max"
    seed: int = 0  # what is drawn follows from (seed, step, bucket, rank)

    def __post_init__(self) -> None:
        if not FEWEST_BITS <= self.bits <= MOST_BITS:
            raise ValueError(f"bits must be in [{FEWEST_BITS}, {MOST_BITS}], got {self.bits}")
        if self.block < 1:
            raise ValueError(f"block must be >= 1, got {self.block}")
        if self.norm not in NORMS:
            raise ValueError(f"norm must be {' or '.join(NORMS)}, got {self.norm!r}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's `bucket.grad`, [n], in floor(32 density) bits, of 2 to `bits`.

        With b bits each worker contributes ceil(b n / 8) + 4 ceil(n / block) bytes to an
        all-gather. `unsent` is `bucket.grad` less what was sent.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        width = max(FEWEST_BITS, min(self.bits, int(FLOAT_BITS * density)))
        levels = (1 << width - 1) - 1
        steps = self._norms(grad) / levels
        scaled = torch.empty_like(grad)
        for part, out, step in _blocks(self.block, grad, scaled, steps=steps.where(steps != 0, 1)):
            torch.div(part, step, out=out)
        key = (self.seed, bucket.step, bucket.index, workers.rank)
        codes = rounded(scaled, levels, key)
        mean = torch.zeros_like(grad)
        for packed, theirs in workers.all_gather(pack(codes, width), steps, equal=True):
            self._add_(mean, unpack(packed, width, n), levels, theirs / workers.size)
        self._add_(grad, codes, levels, -steps)
        return Reduced(mean, unsent=grad)

    def _norms(self, grad: Tensor) -> Tensor:
        """The norm of every block, [ceil(n / block)]."""
        parts = _blocks(self.block, grad)
        largest = [part.abs().amax(1, keepdim=True) for (part,) in parts]
        if self.norm == "max":
            return torch.cat(largest).flatten()
        # Of elements over the largest: squares then neither overflow nor vanish.
        safe = [one.where(one != 0, 1) for one in largest]
        norms = [
            one * (part / one).norm(dim=1, keepdim=True)
            for (part,), one in zip(parts, safe, strict=True)
        ]
        return torch.cat(norms).flatten()

    def _add_(self, total: Tensor, codes: Tensor, levels: int, steps: Tensor) -> None:
        for part, theirs, step in _blocks(self.block, total, codes, steps=steps):
            add_levels_(part, theirs, levels, step)


def _blocks(size: int, *vectors: Tensor, steps: Tensor | None = None) -> list[tuple[Tensor, ...]]:
    """Views [blocks, size] of the whole blocks of `vectors`, and [1, rest] of what is left.

    With each come its rows of `steps`, [blocks, 1].
    """
    n = vectors[0].numel()
    count = n // size
    cuts = [(0, count * size, size), (count * size, n, n - count * size)]
    rows = [(0, count), (count, count + 1)]
    found = []
    for (first, stop, width), (top, bottom) in zip(cuts, rows, strict=True):
        if first == stop:
            continue
        views = [vector[first:stop].view(-1, width) for vector in vectors]
        own = [] if steps is None else [steps[top:bottom, None]]
        found.append((*views, *own))
    return found
