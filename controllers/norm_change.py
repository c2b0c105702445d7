"""Relative change of the gradient's norm from one stretch of exchanges to the next."""

from dataclasses import dataclass, field
from math import isfinite


@dataclass
class NormChange:
    """Relative change |n_before - n_now| / n_before between mean norms of two full stretches."""

    window: int  # exchanges of a stretch
    ratio: float = field(default=float("inf"), init=False)  # inf before two stretches are over
    done: int = field(default=0, init=False)  # stretches that are over
    _sum: float = field(default=0.0, init=False, repr=False)
    _count: int = field(default=0, init=False, repr=False)
    _before: float | None = field(default=None, init=False, repr=False)

    def update(self, norm: float) -> None:
        """Add one exchange's norm. A norm that is not finite does not change the mean."""
        self._count += 1
        self._sum += norm if isfinite(norm) else self._sum / max(1, self._count - 1)
        if self._count < self.window:
            return
        now = self._sum / self._count
        if self._before is not None:
            self.ratio = abs(self._before - now) / self._before if self._before else 0.0
        self._before, self._sum, self._count = now, 0.0, 0
        self.done += 1
