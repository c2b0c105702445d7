"""Buckets that are filled by what is sent (Zhang et al., 2023, section IV.B).

Factors are fused, not gradients. A buffer of 25 MiB times the compression rate, for P and for Q
separately, holds as much of a model as 25 MiB of gradients, so there are as few all-reduces. We
differ in that tensors are in the order of backward. The authors' code uses the reverse of
registration.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Size

MIB, FLOAT_BYTES = 1 << 20, 4


class Fusion(NamedTuple):
    """Buckets of `mb` MiB of gradients, measured in what is sent of them."""

    mb: float  # 0: every tensor is one
    elements: Callable[[Size, int], int]  # sent in a step of a gradient of this shape

    def names(self, shapes: Mapping[str, Size], step: int) -> list[tuple[str, ...]]:
        """Return the buckets of a step by parameter name, last parameter first."""
        sent = {name: self.elements(shape, step) for name, shape in shapes.items()}
        rate = sum(sent.values()) / sum(shape.numel() for shape in shapes.values())
        most, filled = self.mb * MIB / FLOAT_BYTES * rate, 0
        found: list[tuple[str, ...]] = []
        for name in reversed(list(shapes)):
            if found and filled + sent[name] <= most:
                found[-1], filled = (*found[-1], name), filled + sent[name]
            else:
                found, filled = [*found, (name,)], sent[name]
        return found
