"""Hide: the largest density whose exchange backward still hides, by the link model.

Ours. DC2 and NetSenseML aim at a delay relative to its own past. Hide aims at a time that costs
nothing: the hiding window. With a single bucket there is no window, and Hide sends `d_min`.
"""

from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check_densities, check_share
from controllers.link_model import LinkModel


@dataclass(kw_only=True)
class Hide(Controller):
    """Controller that chooses the density whose exchange fills `margin` of the hiding window.

    By the link model it is rate x (margin x window - latency) / bytes per unit of density. Workers
    agree on the minimum.
    """

    margin: float = 0.92  # share of the window to fill, in (0, 1]
    d_min: float = 0.0005  # in (0, d_max]
    d_max: float = 1.0  # in (0, 1]
    start: tuple[float, ...] = (0.001, 0.01)  # of the first exchanges: latency, then rate
    _model: LinkModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_share(margin=self.margin)
        check_densities(self.d_min, self.d_max, tuple(self.start))
        self._model = LinkModel()

    def density(self, seen: Observation | None) -> float:
        """Return `start` at first, then the chosen density, clamped to [d_min, d_max]."""
        model = self._model
        if seen is not None:
            model.update(seen)
        if model.exchanges < len(self.start):
            return self.start[model.exchanges]
        free_s = self.margin * model.hiding.window_s - model.link.latency_s
        budget_bytes = max(0.0, free_s) * model.link.rate if model.link.best else float("inf")
        return min(self.d_max, max(self.d_min, model.volume.density(budget_bytes)))

    def state(self) -> dict[str, float]:
        """Return the quantities of the link model."""
        return self._model.state()
