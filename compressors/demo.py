"""DeMo: send only the fast part of the momentum (Peng, Quesnelle & Kingma, 2024).

Decoupled momentum is d <- decay d + g. Every 64 x 64 chunk of d is transformed by a cosine
transform, and its k largest coefficients are sent. What they decode to is subtracted from d. Each
coefficient is averaged over the workers that sent it. The result is the sign of the decoded mean.

The compressor has the momentum, so the optimizer's must be 0. `error_feedback` must be false,
because d keeps what is not sent. The result has magnitude 1, so the learning rate is the step of
every weight. Weight decay by SGD is then decoupled, as in the paper. We differ:
- d adds g, and the paper's adds the learning rate times g; equal at a constant rate;
- d is kept as its cosine transform, which is linear, so no transform back is needed to subtract
  what is sent;
- entries are ordered by position, and of equal ones the first are sent;
- local gradients are not clipped.

Workers get equal bits if they run the same kernels, on processors of one kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, nan

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.chunks import (
    Chunks,
    check_side,
    chunks_of,
    pack_positions,
    places_of_all,
    positions,
)
from compressors.dct import add_transform, transform
from compressors.fused import add_and_find_largest_of_chunks
from compressors.sparse import add_at_, mean_of_contributors_
from compressors.workspace import workspace


@dataclass
class DeMo(Compressor):
    """Compressor that keeps the transform of d by parameter name, since DDP may rebuild buckets."""

    needs_shapes = True
    by_shape = True
    uniform_density = True  # all payloads are of one length
    is_mean = False  # a sign, of sums of past gradients
    pushes = False  # a server has no chunks
    replaces = ("error_feedback", "optimizer.momentum")
    chunk: int = 64  # side of a chunk of a matrix, elements of one of a vector, at most; 1 to 64
    decay: float = 0.999  # of the momentum, in [0, 1)
    sign: bool = True  # false: the mean itself
    packed: bool = False  # true: 12 bits for a position and 16 for a value, not 64 and 32
    spectra: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # transformed
    sent_entries: int = field(default=0, init=False)  # of the last bucket

    def __post_init__(self) -> None:
        check_side(self.chunk)
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the sign of the inverse transform of the mean coefficients, [n]. `unsent` is None.

        k coefficients of every chunk are sent, `density` times the elements of a whole one, or all.
        With K entries a worker contributes 12 K bytes to an all-gather or, `packed`, ceil(3K / 2) +
        2K.
        """
        k = max(1, int(density * self.chunk**2))
        chunks = chunks_of(bucket.shapes, self.chunk, k)
        spectrum = self._accumulated(bucket, chunks)
        where, values = add_and_find_largest_of_chunks(Buffers(spectrum), chunks)
        index = positions(chunks, where)
        if self.packed:
            values = values.bfloat16()
        add_at_(spectrum, index, values.float(), -1.0)
        for name, part in zip(bucket.names, spectrum.split(bucket.sizes), strict=True):
            self.spectra[name].copy_(part)
        wire = workspace("wire", len(index), torch.int64, bucket.device).copy_(index)
        told = pack_positions(where) if self.packed else wire
        where_of, values_of = zip(*workers.all_gather(told, values, equal=True), strict=True)
        self.sent_entries = chunks.entries
        places = places_of_all(chunks, where_of) if self.packed else where_of
        entries = [(part.float(), at) for part, at in zip(values_of, places, strict=True)]
        mean = mean_of_contributors_(self._memory("mean spectrum", bucket), entries)
        result = transform(mean, chunks, bucket.empty_mean(), inverse=True)
        return Reduced(signs_(result) if self.sign else result, unsent=None)

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        return torch.empty(shapes[0].numel(), device="meta")

    def _accumulated(self, bucket: Bucket, chunks: Chunks) -> Tensor:
        """Return the bucket's decayed momentum plus its gradient, transformed, [n]."""
        sizes = dict(zip(bucket.names, bucket.sizes, strict=True))
        for name, size in sizes.items():
            if name not in self.spectra:
                self.spectra[name] = torch.zeros(size, device=bucket.device)
        kept = [self.spectra[name] for name, size in sizes.items() if size]
        out = self._memory("spectrum", bucket)
        return add_transform(bucket.grad, chunks, out, kept, self.decay)

    def _memory(self, role: str, bucket: Bucket) -> Tensor:
        return workspace(role, bucket.n, torch.float32, bucket.device)


def signs_(x: Tensor) -> Tensor:
    """Replace elements by their signs, zeros by 0, or all by NaN if their sum is not finite."""
    return x.sign_() if isfinite(float(x.sum())) else x.fill_(nan)
