"""Hide and Pace against their formulas, on what the link model's own reference has learned."""

import pytest

from controllers.base import Observation
from controllers.hide import Hide
from controllers.pace import Pace, tried
from tests.controllers.observations import seen
from tests.controllers.test_link_model import SERIES, history, learned, transfer_s


@pytest.mark.parametrize("kind", SERIES)
def test_hide_fills_the_window(kind: str) -> None:
    past, controller = history(kind), Hide(margin=0.9, d_min=0.002)
    assert controller.density(None) == 0.001
    assert controller.density(past[0]) == 0.01
    for count, one in enumerate(past[1:], 2):
        density = controller.density(one)
        known = learned(past[:count])
        free = max(0.0, 0.9 * known["h"] - known["a"]) * known["r"]
        expected = (
            1.0
            if known["dense"] <= free
            else min(1.0, max(0, free - known["fixed"]) / known["per"])
        )
        assert density == pytest.approx(max(0.002, expected))


def most_progress(past: list[Observation], eps: float) -> float:
    """Pace's density after `past`, its expectation summed term by term."""
    errors = [1.0]
    for count in range(2, len(past)):
        known = learned(past[:count])
        expected_s = transfer_s(known, past[count].density)
        if expected_s > 1e-9:
            comm_s = past[count].comm_s
            errors.append(max(comm_s - known["a"], comm_s / 10) / expected_s)
    known, last = learned(past), past[-1]
    terms = errors[-40:]

    def seconds(density: float) -> float:
        exposed = 0.0
        for error in terms:
            comm_s = known["a"] + error * transfer_s(known, density)
            exposed += max(known["w"] * comm_s, comm_s - known["h"])
        return last.compute_s + last.compress_s + exposed / len(terms)

    return max(tried(0.0005, 1.0, 1.17), key=lambda density: density**eps / seconds(density))


@pytest.mark.parametrize("kind", SERIES)
def test_pace_is_the_best_of_those_it_tries(kind: str) -> None:
    past, controller = history(kind, 70), Pace(eps=0.09)
    assert [controller.density(None), controller.density(past[0])] == [0.001, 0.01]
    for count, one in enumerate(past[1:], 2):
        density = controller.density(one)
        if count % 5 == 2:
            assert density == pytest.approx(most_progress(past[:count], 0.09))


@pytest.mark.parametrize(("truth", "factor"), [(0.09, 1.033), (0.18, 1.0), (0.3, 1.043)])
def test_a_wrong_elasticity_costs_what_the_docstring_says(truth: float, factor: float) -> None:
    """On a link that hides nothing and has no latency; time to a target is d^-e T(d)."""

    def time_to_target(eps: float) -> float:
        controller, last = Pace(eps=eps, spacing=1.001), None
        for step in range(12):
            density = controller.density(last)
            received, comm_s = round(1e7 * density), 2 * density
            told = dict(density=density, received_bytes=received, comm_s=comm_s)
            last = seen(step, **told, exposed_s=comm_s, overlap_window_s=0.0, dense_bytes=4_000_000)
        return density**-truth * (last.compute_s + last.compress_s + comm_s)

    assert time_to_target(0.18) / time_to_target(truth) == pytest.approx(factor, abs=0.002)


def test_densities_tried_are_a_geometric_series() -> None:
    densities = tried(0.0005, 1.0, 1.17)
    steps = [after / before for before, after in zip(densities, densities[1:], strict=False)]
    assert steps[:-1] == pytest.approx([1.17] * len(steps[:-1])) and 1 < steps[-1] <= 1.17
    assert (densities[0], densities[-1]) == (0.0005, 1.0)
    assert sum(density < 0.24 for density in densities) == 40


def test_with_nobody_to_send_to_everything_is_sent() -> None:
    for controller in (Hide(), Pace()):
        for step in range(3):
            density = controller.density(seen(step, received_bytes=0, workers=1))
        assert density == 1.0


def test_their_states_are_the_models() -> None:
    hide, pace = Hide(), Pace()
    assert hide.state() == {} and pace.state() == {"error": 1.0, "eps": 0.18}
    for one in history("noisy", 5):
        hide.density(one), pace.density(one)
    names = {"rate", "best_rate", "latency", "window", "exposed_share", "per_density", "fixed"}
    assert set(hide.state()) == names
    assert set(pace.state()) == names | {"error", "eps"}
