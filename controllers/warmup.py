"""Density warm-up: from a high density to the final one by equal factors (DGC; Lin et al., 2018).

The paper uses 25, 6.25, 1.5625, 0.4 and 0.1 %, one density for each of the first epochs.
"""

from controllers.base import Controller, Observation


class WarmUp(Controller):
    """Controller that lowers the density by equal factors; no dataclass, as `Fixed` is none."""

    same_everywhere = True
    reacts_to_network = False

    def __init__(
        self, density: float = 0.001, start: float = 0.25, stages: int = 4, stage_steps: int = 100
    ) -> None:
        """Configure a density that falls from `start` to `density`, both in (0, 1].

        It takes `stages` stages of `stage_steps` steps. Raise ValueError for values out of range.
        """
        for key, value in (("density", density), ("start", start)):
            if not (isinstance(value, (int, float)) and 0 < value <= 1):
                raise ValueError(f"{key} must be in (0, 1], got {value!r}")
        for key, value, least in (("stages", stages, 0), ("stage_steps", stage_steps, 1)):
            if not (isinstance(value, int) and value >= least):
                raise ValueError(f"{key} must be a whole number >= {least}, got {value!r}")
        self._density, self._start = density, start
        self._stages, self._stage_steps = stages, stage_steps

    def density(self, seen: Observation | None) -> float:
        """Return the density of the current stage, or `density` after the last one."""
        step = 0 if seen is None else seen.step + 1
        stage = step // self._stage_steps
        if stage >= self._stages:
            return self._density
        return self._start * (self._density / self._start) ** (stage / self._stages)

    def state(self) -> dict[str, float]:
        return {}
