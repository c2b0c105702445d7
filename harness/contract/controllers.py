"""Laws of all controllers, tested with artificial delays."""

import random
from typing import Any

from controllers.base import Observation
from harness.contract.laws import Law, Make, demand
from harness.engine.exchange.reduction import density_of, state_of

KINDS = ("log-normal", "heavy", "constant", "zero", "rising", "falling", "jumping")
TIMES = ("time_s", "comm_s", "exposed_s", "compress_s", "compute_s", "backward_s",
         "overlap_window_s")  # fmt: skip
SCALES = ((0.0,), (1e-6,), (1e6,))  # factors on all times of an observation


def observation(step: int, delay_s: float, density: float = 0.1) -> Observation:
    """Return the observation of exchange `step`; half of its delay is exposed."""
    return seen(step, density=density, comm_s=delay_s, exposed_s=delay_s / 2)


def delays(kind: str, count: int = 300) -> list[float]:
    """Draw the delays in seconds of `count` exchanges, of a `kind` in KINDS."""
    source = random.Random(f"{kind}")
    draw = {
        "log-normal": lambda step: source.lognormvariate(0, 0.3),
        "heavy": lambda step: source.paretovariate(0.7),
        "constant": lambda step: 0.2,
        "zero": lambda step: 0.0,
        "rising": lambda step: 0.01 * 1.1**step,
        "falling": lambda step: 100 * 0.9**step,
        "jumping": lambda step: source.choice([0.0, 1e-9, 1.0, 1e6]),
    }[kind]
    return [draw(step) for step in range(count)]


def replay(controller: Any, delays_s: list[float]) -> tuple[list[float], list[dict[str, float]]]:
    """Return densities and states, before any delay and after each one."""
    densities, states = [density_of(controller, None)], [state_of(controller)]
    for step, delay_s in enumerate(delays_s):
        densities.append(density_of(controller, observation(step, delay_s, densities[-1])))
        states.append(state_of(controller))
    return densities, states


def density_is_allowed(make: Make, kind: str) -> None:
    """Raise LawBroken if a density leaves [k_min, k_max], or [0, 1] if there are no such limits."""
    controller = make()
    low, high = getattr(controller, "k_min", 0.0), getattr(controller, "k_max", 1.0)
    for density in replay(controller, delays(kind))[0]:
        demand(low <= density <= high, f"density {density}, where [{low}, {high}] is allowed")


def same_again(make: Make) -> None:
    """Raise LawBroken unless two new controllers act the same on the same delays."""
    first, second = (zip(*replay(make(), delays("heavy")), strict=True) for _ in range(2))
    for step, (one, other) in enumerate(zip(first, second, strict=True)):
        demand(one == other, f"{one} and then {other} after {step} exchanges")


def same_at_any_times(make: Make, scale: float) -> None:
    """Raise LawBroken if other times change a controller that ignores the network."""
    if make().reacts_to_network:
        return
    norms = random.Random("norms")
    gradients = [norms.uniform(0.1, 10) for _ in range(500)]

    def chosen(scale: float) -> list[tuple[float, dict[str, float]]]:
        controller, found = make(), []
        for step, norm in enumerate(gradients):
            times = dict.fromkeys(TIMES, scale * (step + 1))
            last = seen(step, grad_norm=norm, **times) if step else None
            found.append((density_of(controller, last), state_of(controller)))
        return found

    for step, (one, other) in enumerate(zip(chosen(1.0), chosen(scale), strict=True)):
        demand(one == other, f"{one} and {other} at exchange {step} of a slower network")


LAWS = (
    Law("its density is always allowed", density_is_allowed, tuple((kind,) for kind in KINDS)),
    Law("the same delays give the same densities and states", same_again),
    Law("times decide nothing, unless reacts_to_network", same_at_any_times, SCALES),
)


def seen(step: int, **values: Any) -> Observation:
    """Return exchange `step` of 4 workers with 4000 dense bytes; `values` replace its fields."""
    usual = dict(
        step=step,
        time_s=0.1 * step,
        density=0.1,
        comm_s=0.1,
        compress_s=0.01,
        compute_s=0.05,
        backward_s=0.04,
        overlap_window_s=0.03,
        exposed_s=0.05,
        sent_bytes=10,
        received_bytes=10,
        dense_bytes=4000,
        workers=4,
    )
    return Observation(**{**usual, **values})
