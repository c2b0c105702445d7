"""Sums over workers in the order of the ring between CPUs, so that bits are equal."""

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.config.backends import BETWEEN_CPUS

SEGMENT_BYTES, SEGMENTS_PER_RANK = BETWEEN_CPUS.segment_bytes, BETWEEN_CPUS.segments_per_rank


def ring_sum(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of `parts`, one per rank. Each addition is rounded in their type.

    The ring cuts a tensor into as many runs of segments as there are ranks. Run c travels round the
    ring from rank c - 1 down to rank c, where it is complete.
    """
    size, first = len(parts), parts[0]
    if size == 1 or not first.is_floating_point():
        return torch.stack(tuple(parts)).sum(0, dtype=first.dtype)
    flat = [part.reshape(-1) for part in parts]
    total = torch.empty_like(flat[0])
    run = _run_elements(first, size)
    for rank in range(size):
        segments = slice(rank * run, (rank + 1) * run)
        if total[segments].numel():
            torch.add(flat[rank - 1][segments], flat[rank - 2][segments], out=total[segments])
            for back in range(3, size + 1):
                total[segments].add_(flat[rank - back][segments])
    return total.view(first.shape)


def _run_elements(tensor: Tensor, size: int) -> int:
    """Return the elements of a run. The last runs may be shorter or empty."""
    each = tensor.element_size()
    most = max(1, SEGMENT_BYTES // each) * each
    segments = max(-(-tensor.nbytes // most), SEGMENTS_PER_RANK * size)
    per_rank = -(-segments // size)
    segment = -(-tensor.nbytes // (per_rank * size))
    return -(-segment // each) * per_rank


def ring_min(parts: Sequence[Tensor]) -> Tensor:
    """Return the element-wise minimum."""
    return torch.stack(tuple(parts)).amin(0)
