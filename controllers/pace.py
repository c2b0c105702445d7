"""Pace: the density with the most progress per second, by the link model.

Ours. Steps to a target grow like d^-eps as the density falls, so progress per second is
    d^eps / E[c + k + exposed(a + e b(d) / r)],
with c and k the last step's compute and compression times, and e the errors of recent predictions
(actual / predicted transfer). The expectation weighs, like a newsvendor, a slightly higher density
against occasional exposure, so no margin is needed. If hiding needs so small a density that extra
steps cost more than the saved seconds, exposure is accepted. Some densities below 1 cost as much as
density 1 (1/P for 8-byte entries in an all-gather, where density 1 is an all-reduce). Densities
between these and 1 never win, so we do not exclude them.

`eps` belongs to the workload: the log ratio of the steps that two fixed densities take to a target,
over the log ratio of the densities. It is not estimated during a run, because steps of neighbouring
densities differ by a few percent, far less than the noise of loss and norm. It need not be exact.
If nothing is hidden and latency is small, using eps in place of the true e costs a factor of
    (r(e) / r(eps))^e (1 - e) / (1 - eps),  r(x) = x / (1 - x).
With eps 0.18 that is 1.03 for e = 0.09 and 1.04 for e = 0.3, and less where exchanges are hidden.
"""

from dataclasses import dataclass, field
from functools import cached_property

from controllers.base import Controller, Observation
from controllers.errors import Errors
from controllers.limits import check_above, check_densities, check_whole
from controllers.link_model import NEGLIGIBLE_S, LinkModel


@dataclass(kw_only=True)
class Pace(Controller):
    """Controller that maximises progress per second. Agree on the minimum if workers differ."""

    eps: float = 0.18  # elasticity of progress per step in the density, > 0
    memory: int = 40  # prediction errors kept, >= 1
    d_min: float = 0.0005  # in (0, d_max]
    d_max: float = 1.0  # in (0, 1]
    spacing: float = 1.17  # ratio of neighbouring densities tried, > 1
    start: tuple[float, ...] = (0.001, 0.01)  # of the first exchanges: latency, then rate
    _model: LinkModel = field(init=False, repr=False)
    _errors: Errors = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above(0, eps=self.eps)
        check_whole(1, memory=self.memory)
        check_densities(self.d_min, self.d_max, tuple(self.start))
        check_above(1, spacing=self.spacing)
        self._model = LinkModel()
        self._errors = Errors(self.memory)

    @cached_property
    def _tried(self) -> list[float]:
        return tried(self.d_min, self.d_max, self.spacing)

    def density(self, seen: Observation | None) -> float:
        """Return `start` at first, then the chosen density, clamped to [d_min, d_max]."""
        if seen is not None:
            self._learn(seen)
        if self._model.exchanges < len(self.start):
            return self.start[self._model.exchanges]
        if seen is None or not self._model.link.best:
            return self.d_max  # alone: nothing has to be sent
        return self._best(seen.compute_s + seen.compress_s + NEGLIGIBLE_S)

    def state(self) -> dict[str, float]:
        """Return the link model's quantities, and the last prediction's error and eps."""
        return self._model.state() | self._errors.state() | {"eps": self.eps}

    def _learn(self, seen: Observation) -> None:
        model = self._model
        expected_s = model.transfer_s(seen.density)
        if model.exchanges >= len(self.start) and expected_s > NEGLIGIBLE_S:
            self._errors.add(model.link.transfer_s(seen.comm_s) / expected_s)
        model.update(seen)

    def _best(self, base_s: float) -> float:
        """Return the density with most progress per second; a step takes `base_s` plus exposure."""
        volume, link, hiding = self._model.volume, self._model.link, self._model.hiding
        rate, latency_s, eps = link.rate, link.latency_s, self.eps

        def speed(d: float) -> float:
            exposed_s = self._errors.exposed_s(hiding, latency_s, volume.bytes(d) / rate)
            return d**eps / (base_s + exposed_s)

        return max(self._tried, key=speed)


def tried(d_min: float, d_max: float, spacing: float) -> list[float]:
    """Return densities from `d_min` up by factors of `spacing`, and `d_max`."""
    densities = []
    density = d_min
    while density < d_max:
        densities.append(density)
        density *= spacing
    return [*densities, d_max]
