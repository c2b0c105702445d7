"""EF-signSGD: signs times the mean magnitude, made right by error feedback (Karimireddy, 2019).

Signs are packed to bits. Meant for `error_feedback: true`: without it the scaled sign alone need
not converge. The paper's worker sends sign and ||p||_1 / d of p = lr g + e; here p = g + e, which
is the same while the learning rate is constant.
"""

from dataclasses import dataclass

import torch

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.packing import add_all_signs_, add_pack_signs_, add_signs_, packed_bytes
from compressors.workspace import workspace


@dataclass
class EFSignSGD(Compressor):
    by_shape = True
    has_level = False
    adds = True
    checks = True
    layerwise: bool = False  # one scale for every parameter, not one for the bucket

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Mean of every worker's signs of the gradient, [n], times its mean magnitude.

        Each worker contributes ceil(n/8) + 4 bytes to an all-gather; with L scales for L layers,
        the sum of their ceil(n/8) + 4. `unsent` is `bucket.grad`, the gradient less what was sent.
        `density` is ignored.
        """
        grad, n = bucket.grad, bucket.grad.numel()
        sizes = [part.numel() for part in bucket.gradients] if self.layerwise else [n]
        bytes_of = [packed_bytes(size, 1) for size in sizes]
        own = workspace("signs", sum(bytes_of), torch.uint8, grad.device)
        layers, signs = grad.split(sizes), own.split(bytes_of)
        added = [None] * len(sizes) if bucket.added is None else bucket.added.split(sizes)
        parts = zip(layers, added, signs, strict=True)
        scales = torch.stack([add_pack_signs_(*part) for part in parts]).to(grad.dtype)
        bucket.see(float(scales.sum()))
        gathered = workers.all_gather(own, scales, equal=True)
        if bucket.is_kept:
            for layer, packed, scale in zip(layers, signs, scales, strict=True):
                add_signs_(layer, packed, -scale)
        mean = bucket.room()
        payloads = zip(*(packed.split(bytes_of) for packed, _ in gathered), strict=True)
        shares = zip(*(theirs / workers.size for _, theirs in gathered), strict=True)
        for layer, theirs, each in zip(mean.split(sizes), payloads, shares, strict=True):
            add_all_signs_(layer, list(theirs), list(each))
        return Reduced(mean, unsent=grad)
