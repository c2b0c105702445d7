"""Choice of a horizon, the number of local steps between two exchanges."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check, check_at_least


def check_horizons(horizons: Sequence[int]) -> None:
    """Raise ValueError unless `horizons` are one or more whole numbers >= 1."""
    good = len(horizons) > 0 and all(type(each) is int and each >= 1 for each in horizons)
    check("horizons", list(horizons), good, "one or more whole numbers >= 1")


@dataclass(kw_only=True)
class HorizonAndDensity(Controller):
    """Mixin that extends a density controller, the next base class, to choose the horizon as well.

    The subclass's `horizon` sets `_chosen`, the horizon and density of the next round.
    """

    zeta: float = 0.1  # elasticity of the steps to a target in the horizon, >= 0
    horizons: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)  # steps, those that are tried
    chooses_horizon = True
    _learnt: int = field(default=-1, init=False, repr=False)  # step of the last observation
    _chosen: tuple[int, float] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        check_at_least(0, zeta=self.zeta)
        check_horizons(self.horizons)

    def density(self, seen: Observation | None) -> float:
        """Return the density chosen with the horizon, until another exchange has been seen."""
        if self._chosen is not None and seen is not None and seen.step == self._learnt:
            return self._chosen[1]
        return super().density(seen)  # type: ignore[safe-super]

    def state(self) -> dict[str, float]:
        steps = {} if self._chosen is None else {"steps": float(self._chosen[0])}
        return super().state() | steps  # type: ignore[safe-super]

    def _learn(self, seen: Observation) -> None:
        if seen.step != self._learnt:
            super()._learn(seen)  # type: ignore[misc]
            self._learnt = seen.step
