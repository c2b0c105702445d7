"""What a controller decides, checked before it counts: a controller may be of one's own."""

from collections.abc import Mapping
from numbers import Integral, Real

from compressors.checks import refuse
from controllers.base import Controller, Observation


def density_of(controller: Controller, seen: Observation | None) -> float:
    """Return the controller's density of the next exchange; BadPart unless it is in (0, 1]."""
    density = controller.density(seen)
    if not (isinstance(density, Real) and 0 < density <= 1):
        refuse(controller, "density()", "a number in (0, 1]", density)
    return float(density)


def horizon_of(controller: Controller, seen: Observation) -> int:
    """Return the steps to the controller's next exchange; BadPart unless a whole number >= 1."""
    steps = controller.horizon(seen)
    if not (isinstance(steps, Integral) and steps >= 1):
        refuse(controller, "horizon()", "a whole number >= 1", steps)
    return int(steps)


def state_of(controller: Controller) -> dict[str, float]:
    """Return what the controller has recorded; BadPart unless it maps names to numbers."""
    state = controller.state()
    if not isinstance(state, Mapping):
        refuse(controller, "state()", "a dict of names and numbers", state)
    for name, value in state.items():
        if not isinstance(value, Real):
            refuse(controller, f"state()[{name!r}]", "a number", value)
    return dict(state)
