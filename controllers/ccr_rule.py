"""The CCR rule: the density at which communication takes as long as computation, at every exchange.

After COVAP (Meng et al., 2023), which computes its interval once, for its own compressor: density
1 / CCR, with CCR = T_comm / T_comp and T_comp backward's time. Here for any compressor: T_comm is
what a whole gradient would take by what this exchange took, delay / density, and both times are
moving averages. Where an exchange is not proportional to its density, that comes to rest where the
delay is T_comp, if there is such a density.
"""

from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check_densities, check_share


@dataclass
class CCRRule(Controller):
    """Chooses the density whose exchange takes as long as backward, by moving averages."""

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
        """`start` first, then 1 / CCR, in [d_min, d_max]."""
        if seen is None:
            return self.start
        self._update(seen.comm_s / seen.density, seen.backward_s)
        assert self._comm_s is not None
        if self._comm_s * self.d_max <= self._comp_s:
            return self.d_max
        return max(self.d_min, self._comp_s / self._comm_s)

    def state(self) -> dict[str, float]:
        """T_comm of a whole gradient and T_comp, in seconds; empty before the first exchange."""
        return {} if self._comm_s is None else {"comm_s": self._comm_s, "comp_s": self._comp_s}

    def _update(self, comm_s: float, comp_s: float) -> None:
        weight = 1.0 if self._comm_s is None else self.weight
        self._comm_s = (1 - weight) * (self._comm_s or 0.0) + weight * comm_s
        self._comp_s = (1 - weight) * self._comp_s + weight * comp_s
