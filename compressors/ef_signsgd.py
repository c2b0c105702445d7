"""EF-signSGD: signs times the mean magnitude, corrected by error feedback (Karimireddy, 2019).

Signs are packed to bits. Use `error_feedback: true`, because the scaled sign alone need not
converge. The paper's worker sends sign and ||p||_1 / d of p = lr g + e. Here p = g + e, which is
the same while the learning rate is constant.
"""

from dataclasses import dataclass

import torch

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_pack_signs, subtract_signs
from compressors.packing import add_all_signs_, packed_bytes
from compressors.workspace import workspace


@dataclass
class EFSignSGD(Compressor):
    by_shape = True
    has_level = False
    layerwise: bool = False  # one scale for every parameter, not one for the bucket

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of every worker's signs of the gradient, [n], times its mean magnitude.

        Each worker contributes ceil(n/8) + 4 bytes to an all-gather. With L scales for L layers, it
        is the sum of their ceil(n/8) + 4. `unsent` is `bucket.grad`, the gradient less what was
        sent. `density` is ignored.
        """
        sizes = bucket.sizes if self.layerwise else [bucket.n]
        bytes_of = [packed_bytes(size, 1) for size in sizes]
        own = workspace("signs", sum(bytes_of), torch.uint8, bucket.device)
        layers, signs = bucket.split(sizes), own.split(bytes_of)
        scales = torch.stack(add_and_pack_signs(layers, signs)).float()
        gathered = workers.all_gather(own, scales, equal=True)
        for layer, packed, scale in zip(layers, signs, scales, strict=True):
            subtract_signs(layer, packed, scale)
        mean = bucket.empty_mean()
        payloads = zip(*(packed.split(bytes_of) for packed, _ in gathered), strict=True)
        shares = zip(*(theirs / workers.world_size for _, theirs in gathered), strict=True)
        for part, theirs, each in zip(mean.split(sizes), payloads, shares, strict=True):
            add_all_signs_(part, list(theirs), list(each))
        return Reduced(mean, unsent=bucket.grad)
