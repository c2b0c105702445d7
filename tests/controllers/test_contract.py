"""Laws of every controller: each yaml of conf/controller is tested by being there."""

import random
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from controllers.base import Observation
from tests.controllers.observations import seen

CHOICES = {path.stem: path for path in sorted(Path("conf/controller").glob("*.yaml"))}
RUN = {  # the keys of a run that a controller may refer to
    "seed": 0,
    "workers": 4,
    "workers_per_node": 1,
    "profile": OmegaConf.load("conf/profile/static.yaml"),
}


def observation(step: int, delay_s: float, density: float = 0.1) -> Observation:
    return seen(step, density=density, comm_s=delay_s, exposed_s=delay_s / 2)


def build(name: str) -> Any:
    return instantiate(OmegaConf.merge(RUN, {"part": OmegaConf.load(CHOICES[name])}).part)


def replay(name: str, delays_s: list[float]) -> tuple[list[float], list[dict[str, float]]]:
    """Densities and states after every delay, the first being before any."""
    controller = build(name)
    densities, states = [controller.density(None)], [controller.state()]
    for step, delay_s in enumerate(delays_s):
        densities.append(controller.density(observation(step, delay_s, densities[-1])))
        states.append(controller.state())
    return densities, states


def delays(kind: str, count: int = 300) -> list[float]:
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


KINDS = ("log-normal", "heavy", "constant", "zero", "rising", "falling", "jumping")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHOICES)
def test_density_is_always_allowed(name: str, kind: str) -> None:
    controller = build(name)
    low, high = getattr(controller, "k_min", 0.0), getattr(controller, "k_max", 1.0)
    densities, _ = replay(name, delays(kind))
    assert all(0 < density <= 1 and low <= density <= high for density in densities)


@pytest.mark.parametrize("name", CHOICES)
def test_the_same_delays_give_the_same_densities_and_states(name: str) -> None:
    assert replay(name, delays("heavy")) == replay(name, delays("heavy"))


@pytest.mark.parametrize("name", [name for name in CHOICES if not build(name).reacts_to_network])
def test_who_does_not_react_to_the_network_chooses_the_same_at_any_times(name: str) -> None:
    norms = random.Random(name)

    def chosen(scale: float, gradients: list[float]) -> list[Any]:
        controller, found = build(name), []
        for step, norm in enumerate(gradients):
            times = dict.fromkeys(
                ("time_s", "comm_s", "exposed_s", "compress_s", "compute_s", "backward_s",
                 "overlap_window_s"), scale * (step + 1),
            )  # fmt: skip
            found.append(controller.density(seen(step, grad_norm=norm, **times) if step else None))
            found.append(controller.state())
        return found

    gradients = [norms.uniform(0.1, 10) for _ in range(500)]
    expected = chosen(1.0, gradients)
    assert all(chosen(scale, gradients) == expected for scale in (0.0, 1e-6, 1e6))
