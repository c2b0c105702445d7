"""Oracle of horizon and density: it knows the profile, as a bound for controllers of both.

Ours. Progress per second is that of `controllers.pace_horizon`. The rate is the profile's own at
the time of the exchange, for as long as the last exchange took. It is greedy: it plans one round at
a time and learns only what else the network loses, as in `controllers.oracle`.
"""

from dataclasses import dataclass

from controllers.base import Observation
from controllers.horizons import HorizonAndDensity
from controllers.link_model import NEGLIGIBLE_S
from controllers.oracle import SAMPLES, Oracle


@dataclass(kw_only=True)
class OracleHorizon(HorizonAndDensity, Oracle):
    """Controller that chooses horizon and density together, at each round, from `profile`."""

    eps: float = 0.18  # elasticity of progress in the density, > 0

    def horizon(self, seen: Observation) -> int:
        """Return the chosen one of `horizons`."""
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
        """Return the mean rate from `begin_s` to `end_s`, in bytes/s."""
        parts = ((i + 0.5) / SAMPLES for i in range(SAMPLES))
        return sum(self._rate(begin_s + part * (end_s - begin_s)) for part in parts) / SAMPLES
