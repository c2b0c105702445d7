"""signSGD with majority vote: one bit per element, and the sign of the majority (Bernstein, 2018).

The vote replaces the mean: every element of the result is +scale or -scale, so the learning rate
must fit steps of one size. There is no error feedback (`unsent` is None). As in ACP-SGD (Zhang et
al., 2023), workers exchange their bits by an all-gather, and each counts. Zeros and ties are +1.
The paper's server, which sends the result back, is not imitated.
"""

from dataclasses import dataclass
from math import isfinite

import torch

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_pack_signs
from compressors.packing import BYTE, packed_bytes, vote_
from compressors.workspace import workspace

MOST_SCALE = 1e20  # float32 has numbers up to 3e38, so that an update stays finite


@dataclass
class SignSGD(Compressor):
    by_shape = True
    has_level = False
    is_mean = False
    scale: float = 1.0  # magnitude of every element of the result, > 0; the paper's is 1

    def __post_init__(self) -> None:
        if not 0 < self.scale <= MOST_SCALE:
            raise ValueError(f"scale must be in (0, {MOST_SCALE:g}], got {self.scale}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the majority's sign of every element of `bucket.grad`, [n], times `scale`.

        Each worker contributes ceil((n + 1) / 8) bytes. The last bit says that all its elements are
        finite. If one worker's are not, the result is NaN. `density` is ignored.
        """
        n = bucket.n
        own = workspace("signs", packed_bytes(n + 1, 1), torch.uint8, bucket.device)
        (magnitude,) = add_and_pack_signs([bucket.buffers], [own])
        if isfinite(magnitude):
            own[n // BYTE] |= 1 << n % BYTE
        payloads = [packed for (packed,) in workers.all_gather(own, equal=True)]
        mean = bucket.empty_mean()
        if all(int(packed[n // BYTE]) >> n % BYTE for packed in payloads):
            vote_(mean, payloads, self.scale)
        else:
            mean.fill_(float("nan"))
        return Reduced(mean, unsent=None)
