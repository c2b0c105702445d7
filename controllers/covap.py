"""COVAP's profiler: an interval from communication over computation (Meng et al., 2023).

After some dense exchanges to warm up, the controller profiles `profile_steps` exchanges. T_comm is
the time of the collectives, counted from when the last worker begins (Observation.comm_s if the
workers agree). T_comp is the time of backward, and CCR = T_comm / T_comp. The rest of the run has
the interval I = max(1, ceil(round(CCR, 1))), whose density 1 / I hides communication. CCR is
rounded because the paper reads VGG-19's 842 / 210 as 4.

The paper leaves the following open, or we add it:
- All workers use one I. The exchange after the profile runs at each worker's own 1 / CCR, and I
  follows from the density that they agree on. Use `controller.agree: mean`, so that T_comm is the
  mean over workers.
- A new profile is taken every `period` exchanges, without dense exchanges. Within I exchanges every
  part is sent once, so I times their mean is the T_comm of a dense one.
- I is at most `max_interval`.
"""

from dataclasses import dataclass, field
from math import ceil, inf
from statistics import fmean

from controllers.base import Controller, Observation
from controllers.limits import check_whole

NEGLIGIBLE_S = 1e-12  # a shorter time is no divisor


@dataclass
class COVAP(Controller):
    """Controller that profiles some exchanges, then keeps the interval agreed on by all workers."""

    warm_steps: int = 2  # dense exchanges before the profile, >= 1: DDP lays out buckets anew
    profile_steps: int = 1  # profiled, >= 1; of I exchanges each when it is done again
    period: int | None = None  # exchanges from one profile to the next, >= 1; None: only one
    max_interval: int = 1000  # >= 1
    _interval: int = field(default=1, init=False, repr=False)
    _profile: list[Observation] = field(default_factory=list, init=False, repr=False)
    _agreeing: bool = field(default=False, init=False, repr=False)  # on this exchange's density
    _measured: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        period = 1 if self.period is None else self.period
        check_whole(1, warm_steps=self.warm_steps, profile_steps=self.profile_steps, period=period)
        check_whole(1, max_interval=self.max_interval)
        self._wait: float = self.warm_steps  # exchanges until the profile

    def density(self, seen: Observation | None) -> float:
        """Return 1 / I, or 1 / CCR for the one exchange after a profile."""
        if seen is None:
            return 1.0
        if self._agreeing:
            self._agreeing, self._wait = False, self.period or inf
            self._interval = interval(1 / seen.density)
        elif self._wait > 0:
            self._wait -= 1
        else:
            self._profile.append(seen)
        if len(self._profile) == self._interval * self.profile_steps:
            self._agreeing = True
            return self._measure()
        return 1 / self._interval

    def state(self) -> dict[str, float]:
        """Return I and, after a profile, T_comm and T_comp of this worker (s) and their ratio."""
        return {"interval": self._interval, **self._measured}

    def _measure(self) -> float:
        """Return 1 / CCR of the profile, clamped to [1 / max_interval, 1]."""
        comm_s = self._interval * fmean(seen.comm_s for seen in self._profile)
        comp_s = fmean(seen.backward_s for seen in self._profile)
        self._profile.clear()
        ccr = comm_s / max(comp_s, NEGLIGIBLE_S)
        self._measured = {"comm_s": comm_s, "comp_s": comp_s, "ccr": ccr}
        return 1 / min(self.max_interval, max(1.0, ccr))


def interval(ccr: float) -> int:
    """Return the interval I for a communication-to-computation ratio `ccr` > 0."""
    return max(1, ceil(round(ccr, 1)))
