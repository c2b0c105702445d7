"""Oracle in both: horizon and density by the real profile, a bound for controllers of the two.

Ours. Progress per second is that of `controllers.pace_horizon`; the rate is the profile's own when
the exchange after so many steps will begin, for as long as the last one took. It is greedy: one
round at a time, and what a network loses besides it only learns, as `controllers.oracle` says.
"""

from dataclasses import dataclass, field

from controllers.base import Observation
from controllers.horizons import check_horizons
from controllers.limits import check_at_least
from controllers.link_model import NEGLIGIBLE_S
from controllers.oracle import SAMPLES, Oracle


@dataclass(kw_only=True)
class OracleHorizon(Oracle):
    """Chooses horizon and density together, at a round's begin, from the network's `profile`."""

    eps: float = 0.18  # elasticity of progress in the density, > 0
    zeta: float = 0.1  # elasticity of the steps to a target in the horizon, >= 0
    horizons: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)  # steps, those that are tried
    chooses_horizon = True
    _learnt: int = field(default=-1, init=False, repr=False)  # step of the last observation
    _chosen: tuple[int, float] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(0, zeta=self.zeta)
        check_horizons(self.horizons)

    def horizon(self, seen: Observation) -> int:
        """One of `horizons`."""
        self._learn(seen)
        step_s = seen.compute_s / seen.local_steps
        best = 0.0
        for steps in self.horizons:
            begin_s = seen.time_s + steps * step_s
            rate, hops_s = self._between(begin_s, begin_s + seen.comm_s), self._hops_s(begin_s)
            for d in self._tried:
                shown_s = self._errors.exposed_s(self._hiding, hops_s, self._volume.bytes(d) / rate)
                took_s = step_s + (seen.compress_s + shown_s) / steps + NEGLIGIBLE_S
                speed = float(d**self.eps * steps**-self.zeta / took_s)
                if speed > best:
                    best, self._chosen, self._known = speed, (steps, d), (rate, hops_s)
        assert self._chosen is not None
        return self._chosen[0]

    def density(self, seen: Observation | None) -> float:
        """What was chosen with the horizon, until another exchange has been seen."""
        if self._chosen is not None and seen is not None and seen.step == self._learnt:
            return self._chosen[1]
        return super().density(seen)

    def state(self) -> dict[str, float]:
        steps = {} if self._chosen is None else {"steps": float(self._chosen[0])}
        return super().state() | steps

    def _between(self, begin_s: float, end_s: float) -> float:
        """Mean rate over a time, bytes/s."""
        parts = ((i + 0.5) / SAMPLES for i in range(SAMPLES))
        return sum(self._rate(begin_s + part * (end_s - begin_s)) for part in parts) / SAMPLES

    def _learn(self, seen: Observation) -> None:
        if seen.step != self._learnt:
            super()._learn(seen)
            self._learnt = seen.step
