"""Kimad: send as many bytes as the recent bandwidth carries within a time budget.

After Xin, Ilin, Zhang, Canini and Richtarik (2023), with one ratio for all layers. We know the
formula from general knowledge of the paper only. There the user gives the budget of a round, and
EF21 feeds the error back. Here the budget is the step's compute time or, with `budget: hiding`
(ours), the time of an exchange that backward can hide. Error feedback is the method's choice.
"""

from collections import deque
from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check, check_densities, check_whole
from controllers.link_model import NEGLIGIBLE_S, Hiding, Volume


@dataclass(kw_only=True)
class Kimad(Controller):
    """Controller with d = B t / bytes per density, where B is the recent mean bandwidth."""

    budget: str = "compute"  # compute | hiding: the time t an exchange may take
    window: int = 10  # exchanges the bandwidth is averaged over, >= 1
    d_min: float = 0.001  # in (0, d_max]
    d_max: float = 1.0  # in (0, 1]
    start: float = 0.01  # of the first exchange
    _volume: Volume = field(default_factory=Volume, init=False, repr=False)
    _hiding: Hiding = field(default_factory=Hiding, init=False, repr=False)
    _bandwidths: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        allowed = ("compute", "hiding")
        check("budget", self.budget, self.budget in allowed, " or ".join(allowed))
        check_whole(1, window=self.window)
        check_densities(self.d_min, self.d_max, (self.start,))
        self._bandwidths = deque(maxlen=self.window)

    def density(self, seen: Observation | None) -> float:
        """Return `start` at first, then the chosen density, clamped to [d_min, d_max]."""
        if seen is None:
            return self.start
        self._volume.update(seen)
        self._hiding.update(seen)
        self._bandwidths.append(seen.received_bytes / max(seen.comm_s, NEGLIGIBLE_S))
        budget_s = seen.compute_s if self.budget == "compute" else self._hiding.window_s
        budget_bytes = self._bandwidth() * budget_s
        return min(self.d_max, max(self.d_min, self._volume.density(budget_bytes)))

    def state(self) -> dict[str, float]:
        """Return the bandwidth in bytes/s. Empty before the first exchange."""
        return {"bandwidth": self._bandwidth()} if self._bandwidths else {}

    def _bandwidth(self) -> float:
        return sum(self._bandwidths) / len(self._bandwidths)
