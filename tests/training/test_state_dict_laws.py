"""State dicts of every compressor and controller: each yaml of conf is tested by being there.

What was taken after some steps and put into a new object gives the same next steps, bit for bit.
"""

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.exchange.feedback import Residual
from harness.engine.training.load_state_dict import load_state_dict
from tests.compressors.reductions import Replica, Shapes, bits, build, gradient, variants
from tests.compressors.threads import ThreadWorkers, together
from tests.controllers.test_contract import CHOICES, delays, observation
from tests.controllers.test_contract import build as build_controller
from tests.training.test_state_dict import through_a_file

PARAMETERS: Shapes = {"embed": (12, 40), "bias": (33,), "kernel": (8, 3, 3, 3), "scale": (1,)}
BUCKETS = (("scale", "kernel"), ("bias", "embed"))
BEFORE, AFTER, SIZE = 5, 4, 3


def steps(replica: Replica, first: int, count: int) -> list[Tensor]:
    """The means of `count` steps, and of each what was left unsent."""
    found = []
    for step in range(first, first + count):
        for index, names in enumerate(BUCKETS):
            of = {name: PARAMETERS[name] for name in names}
            n = sum(prod(shape) for shape in of.values())
            grad = gradient(n, 100 * step + 10 * index + replica.workers.rank)
            mean, unsent = replica.reduce(grad, 0.2, step, index, of).reduced
            found += [mean, mean if unsent is None else unsent]
    return found


@pytest.mark.parametrize("feeds_back", [False, True])
@pytest.mark.parametrize("variant", variants())
def test_a_compressor_goes_on_from_its_state_dict(variant: str, feeds_back: bool) -> None:
    def new(workers: ThreadWorkers) -> Replica:
        replica = Replica(workers, build(variant))
        if feeds_back and "error_feedback" not in replica.compressor.replaces:
            replica.feedback = Residual()
        return replica

    def work(workers: ThreadWorkers) -> bool:
        straight, resumed = new(workers), new(workers)
        steps(straight, 0, BEFORE)
        parts = (resumed.compressor, resumed.feedback)
        kept = through_a_file((straight.compressor, straight.feedback))
        for part, state in zip(parts, kept[1], strict=True):
            load_state_dict(state, part)
        expected = steps(straight, BEFORE, AFTER)
        found = steps(resumed, BEFORE, AFTER)
        return all(
            torch.equal(bits(a), bits(b)) for a, b in zip(expected, found, strict=True)
        )  # fmt: skip

    assert all(together(SIZE, work))


def choices(controller: Any, first: int, delays_s: list[float]) -> list[Any]:
    found = []
    for step, delay_s in enumerate(delays_s, first):
        density = controller.density(observation(step, delay_s) if step else None)
        found.append((density, controller.state()))
    return found


@pytest.mark.parametrize("kind", ["log-normal", "jumping"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_controller_goes_on_from_its_state_dict(name: str, kind: str) -> None:
    delays_s = delays(kind, 120)
    for before in (1, 60):
        straight, resumed = build_controller(name), build_controller(name)
        choices(straight, 0, delays_s[:before])
        assert load_state_dict(through_a_file(straight), resumed) is resumed
        expected = choices(straight, before, delays_s[before:])
        assert choices(resumed, before, delays_s[before:]) == expected
