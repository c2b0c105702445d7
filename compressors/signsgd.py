"""signSGD with majority vote: a bit per element, and the sign most workers have (Bernstein, 2018).

The vote replaces the mean: every element of the result is +scale or -scale, so the learning rate
must fit steps of one size; there is no error feedback (`unsent` is None). As in ACP-SGD (Zhang et
al., 2023), workers exchange their bits by an all-gather and count for themselves; zeros and ties
are +1. The paper's server, which sends the result back, is not imitated.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from compressors.base import Bucket, Reduced, Workers
from compressors.packing import pack, unpack


@dataclass
class SignSGD:
    uniform_density: ClassVar[bool] = False
    has_level: ClassVar[bool] = False
    is_mean: ClassVar[bool] = False
    scale: float = 1.0  # magnitude of every element of the result, > 0; the paper's is 1

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"scale must be in (0, inf), got {self.scale}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """The majority's sign of every element of `bucket.grad`, [n], times `scale`.

        Each worker contributes ceil((n + 1) / 8) bytes: the last bit says that all its elements are
        finite, and if one has none of it the result is NaN. `density` is ignored.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        bits = torch.empty(n + 1, dtype=torch.bool, device=grad.device)
        torch.ge(grad, 0, out=bits[:n])
        bits[n] = torch.stack(torch.aminmax(grad)).isfinite().all()
        votes = torch.zeros(n + 1, dtype=torch.int32, device=grad.device)
        for (packed,) in workers.all_gather(pack(bits.view(torch.uint8), 1), equal=True):
            votes += unpack(packed, 1, n + 1)
        if votes[n] < workers.size:
            return Reduced(grad.fill_(float("nan")), unsent=None)
        ahead = votes[:n].mul_(2) >= workers.size
        return Reduced(grad.fill_(-self.scale).masked_fill_(ahead, self.scale), unsent=None)
