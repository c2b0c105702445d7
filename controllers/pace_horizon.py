"""Pace of horizon and density: the pair with the most progress per second, by the link model.

Ours. Steps to a target grow like d^-eps as the density falls, and like h^zeta with the number of
local steps between two exchanges. So progress per second is
    d^eps h^-zeta / (c + E[k + exposed(a + e b(d) / r)] / h),
with c the computation of one step and the rest as in `controllers.pace`. `zeta` belongs to the
workload: the log ratio of the steps that two fixed horizons take to a target, over the log ratio of
the horizons.
"""

from dataclasses import dataclass

from controllers.base import Observation
from controllers.horizons import HorizonAndDensity
from controllers.link_model import NEGLIGIBLE_S
from controllers.pace import Pace


@dataclass(kw_only=True)
class PaceHorizon(HorizonAndDensity, Pace):
    """Controller that chooses horizon and density each round; workers agree on the minimum."""

    def horizon(self, seen: Observation) -> int:
        """Return the chosen one of `horizons`. Keep the configured steps while trying `start`."""
        self._learn(seen)
        if self._model.exchanges < len(self.start) or not self._model.link.best:
            return seen.local_steps
        step_s = seen.compute_s / seen.local_steps
        volume, link, hiding = self._model.volume, self._model.link, self._model.hiding
        eps = self.eps
        shown_s = {
            d: self._errors.exposed_s(hiding, link.latency_s, volume.bytes(d) / link.rate)
            for d in self._tried
        }

        def speed(pair: tuple[int, float]) -> float:
            steps, d = pair
            took_s = step_s + (seen.compress_s + shown_s[d]) / steps + NEGLIGIBLE_S
            return float(d**eps * steps**-self.zeta / took_s)

        self._chosen = max(((h, d) for h in self.horizons for d in self._tried), key=speed)
        return self._chosen[0]
