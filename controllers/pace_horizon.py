"""Pace in both: the density and the horizon of most progress per second, by the link model.

Ours. Steps to a target grow like d^-eps as the density falls, and like h^zeta with the local steps
between two exchanges, so progress per second is
    d^eps h^-zeta / (c + E[k + exposed(a + e b(d) / r)] / h),
with c a step's computation; the rest is as in `controllers.pace`. `zeta` is the workload's: log
ratio of the steps that two fixed horizons take to a target, over the log ratio of these.
"""

from dataclasses import dataclass, field

from controllers.base import Observation
from controllers.horizons import check_horizons
from controllers.limits import check_at_least
from controllers.link_model import NEGLIGIBLE_S
from controllers.pace import Pace


@dataclass(kw_only=True)
class PaceHorizon(Pace):
    """Chooses horizon and density together, at a round's begin; agree on min if workers differ."""

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
        """One of `horizons`; while the first densities are tried, the steps as they are."""
        self._learn(seen)
        if self._model.exchanges < len(self.start) or not self._model.link.best:
            return seen.local_steps
        step_s = seen.compute_s / seen.local_steps
        volume, link, hiding = self._model.volume, self._model.link, self._model.hiding
        eps = self._eps()
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

    def density(self, seen: Observation | None) -> float:
        """What was chosen with the horizon, until another exchange has been seen."""
        if self._chosen is not None and seen is not None and seen.step == self._learnt:
            return self._chosen[1]
        return super().density(seen)

    def state(self) -> dict[str, float]:
        steps = {} if self._chosen is None else {"steps": float(self._chosen[0])}
        return super().state() | steps

    def _learn(self, seen: Observation) -> None:
        if seen.step != self._learnt:
            super()._learn(seen)
            self._learnt = seen.step
