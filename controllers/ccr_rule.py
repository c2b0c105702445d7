"""The CCR rule: choose the density at which communication takes as long as computation.

COVAP (Meng et al., 2023) computes its interval once, for its own compressor: density 1 / CCR with
CCR = T_comm / T_comp, where T_comp is the time of backward. This controller applies the rule at
every exchange and to any compressor. T_comm, the time of a whole gradient, is estimated as delay /
density. Both times are moving averages. If the delay is not proportional to the density, the rule
converges to a density whose delay is T_comp, if one exists.
"""

from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check_densities, check_share


@dataclass
class CCRRule(Controller):
    """Controller that moves towards the density whose exchange takes as long as backward."""

    d_min: float = 0.001  # in (0, d_max]
    d_max: float = 1.0  # in (0, 1]
    start: float = 0.1  # density of the first exchange
    weight: float = 0.5  # of the last exchange in the averages, in (0, 1]
    _comm_s: float | None = field(default=None, init=False, repr=False)
    _comp_s: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        check_densities(self.d_min, self.d_max, (self.start,))
        check_share(weight=self.weight)

    def density(self, seen: Observation | None) -> float:
        """Return `start` at first, then 1 / CCR clamped to [d_min, d_max]."""
        if seen is None:
            return self.start
        weight = 1.0 if self._comm_s is None else self.weight
        self._comm_s = (1 - weight) * (self._comm_s or 0.0) + weight * (seen.comm_s / seen.density)
        self._comp_s = (1 - weight) * self._comp_s + weight * seen.backward_s
        assert self._comm_s is not None
        if self._comm_s * self.d_max <= self._comp_s:
            return self.d_max
        return max(self.d_min, self._comp_s / self._comm_s)

    def state(self) -> dict[str, float]:
        """Return T_comm of a whole gradient and T_comp in seconds, once measured."""
        return {} if self._comm_s is None else {"comm_s": self._comm_s, "comp_s": self._comp_s}
