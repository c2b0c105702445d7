"""Compute-utilisation target: the fewest local steps that keep workers computing.

Streaming DiLoCo (Douillard et al., 2025) defines the measure, the share of time in which workers
compute. The rule is ours. Each exchange costs o seconds that are exposed or spent on compression,
once in n steps of c seconds each. So n c / (n c + o) >= target for n >= target / (1 - target) o /
c.
"""

from dataclasses import dataclass, field
from math import ceil

from controllers.base import Controller, Observation
from controllers.limits import check, check_whole, is_number


@dataclass(kw_only=True)
class CuTarget(Controller):
    """Controller that chooses the least horizon whose predicted utilisation reaches `target`.

    It predicts that the next exchange costs what the last one did. The density is 1.
    """

    target: float = 0.9  # compute utilisation, in (0, 1)
    h_max: int = 512  # steps, >= 1
    same_everywhere = True
    chooses_horizon = True
    _steps: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check("target", self.target, is_number(self.target) and 0 < self.target < 1, "in (0, 1)")
        check_whole(1, h_max=self.h_max)

    def density(self, seen: Observation | None) -> float:
        return 1.0

    def horizon(self, seen: Observation) -> int:
        """Return the chosen number of local steps, clamped to [1, h_max]."""
        step_s, cost_s = seen.compute_s / seen.local_steps, seen.exposed_s + seen.compress_s
        most = self.h_max * step_s * (1 - self.target) / self.target
        affordable = cost_s <= most and step_s > 0
        wanted = (
            ceil(self.target / (1 - self.target) * cost_s / step_s) if affordable else self.h_max
        )
        self._steps = min(self.h_max, max(1, wanted))
        return self._steps

    def state(self) -> dict[str, float]:
        """Return the last chosen horizon. Empty before the first choice."""
        return {} if self._steps is None else {"steps": float(self._steps)}
