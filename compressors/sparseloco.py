"""SparseLoCo: the largest entries of every chunk in 12 + 2 bits (Sarfi et al., 2025).

Its codec works on a gradient or pseudo-gradient D. With error e: e <- beta e + D; s = Q(top-k of
each chunk of e); e <- e - s. The result is the mean of all workers' s. Use it with `error_feedback:
true`, which keeps e; beta is its `residual_decay`, 0.95 in the paper. Chunks have 64 x 64 elements,
of which 64 are sent.

The quantiser Q is the authors'. For a parameter's entries with mean mu and deviation sd, the code
is q = round((x - mu) / (6 sd / 4) + 2), in 0..3. A code decodes to the mean of the entries that
have it. Each parameter sends five numbers for decoding. We differ:
- the authors' code sends a code of 2 bits as a byte; here four share a byte, as in the paper;
- entries are ordered by position, and of equal ones the first are sent;
- a chunk with fewer entries may send an odd number.

`aggregate: contributors` is that of the authors' code. Each worker's part of a parameter is clipped
to the median of their norms. An entry is averaged over the workers that sent it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.chunks import (
    Chunks,
    check_side,
    chunks_of,
    pack_positions,
    places_of_all,
    positions,
)
from compressors.codebook import WIDTHS, decode, quantise
from compressors.fused import add_and_find_largest_of_chunks, scatter, subtract
from compressors.sparse import mean_of_contributors_
from compressors.workspace import workspace

AGGREGATES = ("workers", "contributors")


@dataclass
class SparseLoCo(Compressor):
    needs_shapes = True
    by_shape = True
    uniform_density = True  # all payloads are of one length
    chunk: int = 64  # side of a chunk of a matrix, elements of one of a vector, at most; 1 to 64
    bits: int | None = 2  # of a value: 1, 2, 4 or 8; null: float32, as it is
    aggregate: str = "workers"  # workers: sum / P | contributors: clipped, mean over the senders
    sent_entries: int = field(default=0, init=False)  # of the last bucket
    is_mean: bool = field(init=False)

    def __post_init__(self) -> None:
        check_side(self.chunk)
        if self.bits is not None and self.bits not in WIDTHS:
            allowed = ", ".join(map(str, WIDTHS))
            raise ValueError(f"bits must be one of {allowed}, or null, got {self.bits}")
        if self.aggregate not in AGGREGATES:
            allowed = " or ".join(AGGREGATES)
            raise ValueError(f"aggregate must be {allowed}, got {self.aggregate!r}")
        self.is_mean = self.aggregate == "workers"

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of what the workers send of the gradient, [n]: k entries of every chunk.

        k is `density` times the elements of a whole chunk, even and at least 2, or all elements of
        a smaller chunk. With K entries of L parameters each worker contributes ceil(3K / 2) +
        ceil(K / 4) + 20 L bytes to an all-gather. `unsent` is `bucket.grad` less the decoded
        values.
        """
        k = max(2, 2 * int(density * self.chunk**2 / 2))
        chunks = chunks_of(bucket.shapes, self.chunk, k)
        where, values = add_and_find_largest_of_chunks(bucket.buffers, chunks)
        payload = [values] if self.bits is None else quantise(values, chunks.counts, self.bits)
        subtract(bucket.buffers, self._sent(payload, chunks, values), positions(chunks, where))
        told = [pack_positions(where), *(part.flatten() for part in payload)]
        packed, *payloads = zip(*workers.all_gather(*told, equal=True), strict=True)
        self.sent_entries = chunks.entries
        room = workspace("values of all", len(packed) * len(where), values.dtype, values.device)
        parts = zip(zip(*payloads, strict=True), room.view(len(packed), -1), strict=True)
        sent = [self._sent(theirs, chunks, part) for theirs, part in parts]
        entries = list(zip(sent, places_of_all(chunks, packed), strict=True))
        return Reduced(self._averaged(entries, chunks, bucket), unsent=bucket.grad)

    def _sent(self, payload: Sequence[Tensor], chunks: Chunks, out: Tensor) -> Tensor:
        """Return the values in a worker's `payload`, [K], decoded into `out` if they are codes."""
        if self.bits is None:
            return payload[0]
        books = payload[1].view(len(chunks.blocks), -1)
        return decode(payload[0], books, chunks.counts, self.bits, out)

    def _averaged(
        self, entries: list[tuple[Tensor, Tensor]], chunks: Chunks, bucket: Bucket
    ) -> Tensor:
        if self.aggregate == "workers":
            return scatter(bucket.buffers, entries, 1 / len(entries))
        return mean_of_contributors_(bucket.empty_mean(), clipped(entries, chunks.counts))


def clipped(entries: list[tuple[Tensor, Tensor]], counts: list[int]) -> list[tuple[Tensor, Tensor]]:
    """Scale down the parts of each worker's entries to at most the median norm over workers.

    An item of `entries` is one worker's (values, index). `counts` has the number of values of each
    part, a parameter. Return scaled entries; the inputs are not changed.
    """
    parts = [values.split(counts) for values, _ in entries]
    norms = torch.stack([torch.stack([part.norm() for part in own]) for own in parts])
    factors = (norms.median(0).values / norms).clamp_(max=1).nan_to_num_(1)
    each = [
        torch.cat([part * factor for part, factor in zip(own, theirs, strict=True)])
        for own, theirs in zip(parts, factors, strict=True)
    ]
    return [(values, index) for values, (_, index) in zip(each, entries, strict=True)]
