"""Accordion: little compression while the gradient's norm changes fast (Agarwal et al., 2021).

The paper's public code compares the norm of each layer's accumulated gradient with that of the
previous check. We compare the mean norm of the whole gradient over a stretch of exchanges. The
paper also compresses little after a decay of the learning rate, which a controller does not see.
The network does not influence the choice.
"""

from dataclasses import dataclass, field
from math import isfinite

from controllers.base import Controller, Observation
from controllers.limits import check, check_above, check_share, check_whole


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


@dataclass(kw_only=True)
class Accordion(Controller):
    """Controller of two densities, which chooses `high` during critical regimes and `low` else.

    A regime is critical while |norm change| / previous norm >= `eta`. The first two stretches are
    critical, since nothing can be compared before.
    """

    needs_norms = True
    reacts_to_network = False
    low: float = 0.01  # outside critical regimes, in (0, high]
    high: float = 0.1  # inside them, in (0, 1]
    eta: float = 0.5  # relative change of the norm that makes a regime critical, > 0
    window: int = 25  # exchanges of a stretch, >= 1
    _change: NormChange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_share(high=self.high, low=self.low)
        check("low", self.low, self.low <= self.high, f"in (0, {self.high}] (high)")
        check_above(0, eta=self.eta)
        check_whole(1, window=self.window)
        self._change = NormChange(self.window)

    def density(self, seen: Observation | None) -> float:
        """Return `high` in a critical regime, else `low`."""
        if seen is not None:
            self._change.update(seen.grad_norm)
        return self.high if self._change.ratio >= self.eta else self.low

    def state(self) -> dict[str, float]:
        """Return the last relative change of the norm. Empty during the first two stretches."""
        return {"change": self._change.ratio} if self._change.done > 1 else {}
