"""Oracle in both: horizon and density by the real profile, a bound for controllers of the two.

Ours. Progress per second is that of `controllers.pace_horizon`; the rate is the profile's own when
the exchange after so many steps will begin, for as long as the last one took. It is greedy: one
round at a time, and what a network loses besides it only learns, as `controllers.oracle` says.
"""

from dataclasses import dataclass

from controllers.base import Observation
from controllers.horizons import HorizonAndDensity
from controllers.link_model import NEGLIGIBLE_S
from controllers.oracle import SAMPLES, Oracle


@dataclass(kw_only=True)
class OracleHorizon(HorizonAndDensity, Oracle):
    """Chooses horizon and density together, at a round's begin, from the network's `profile`."""

    eps: float = 0.18  # elasticity of progress in the density, > 0

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

    def _between(self, begin_s: float, end_s: float) -> float:
        """Mean rate over a time, bytes/s."""
        parts = ((i + 0.5) / SAMPLES for i in range(SAMPLES))
        return sum(self._rate(begin_s + part * (end_s - begin_s)) for part in parts) / SAMPLES
