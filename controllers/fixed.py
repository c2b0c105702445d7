"""A constant density: the uniform baselines of the papers."""

from controllers.base import Controller, Observation


class Fixed(Controller):
    """Controller with one density; no dataclass, as a field would hide the method `density`."""

    same_everywhere = True
    reacts_to_network = False

    def __init__(self, density: float = 1.0) -> None:
        if not (isinstance(density, (int, float)) and 0 < density <= 1):
            raise ValueError(f"density must be in (0, 1], got {density!r}")
        self._density = density

    def density(self, seen: Observation | None) -> float:
        return self._density

    def state(self) -> dict[str, float]:
        return {}
