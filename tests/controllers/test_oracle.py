"""The oracle's arithmetic on profiles whose rates are known by heart."""

from typing import Any, NamedTuple

import pytest

from controllers import oracle as oracle_module
from controllers.oracle import Oracle
from tests.controllers.observations import seen


@pytest.fixture(autouse=True)
def all_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_module, "PAYLOAD_SHARE", 1.0)


class Conditions(NamedTuple):
    rate_mbit: float
    delay_ms: float


class Known:
    """Node 1's downlink is the slowest: 16 Mbit/s, 8 from second 100 on, when a flow comes too."""

    def link(self, time_s: float, node: int, way: str) -> Conditions:
        slowest = (node, way) == (1, "down")
        rate = 16.0 if slowest else 100.0
        return Conditions(rate / 2 if time_s >= 100 else rate, 1.0 if way == "up" else 2.0)

    def flows(self, time_s: float) -> int:
        return int(time_s >= 100)


def one(step: int, **values: Any) -> Any:
    """An exchange of 3 MB a unit of density, behind a window of 60 ms; hops take 9 ms."""
    usual = dict(compute_s=0.1, overlap_window_s=0.06, compress_s=0.0, exposed_s=0.0, density=0.01)
    usual |= dict(received_bytes=30_000, comm_s=0.009 + 30_000 / 2e6, time_s=10.0)
    return seen(step, **{**usual, **values})


def oracle(**fields: Any) -> Oracle:
    """One that fills all of the window, unless told otherwise."""
    usual = dict(profile=Known(), workers=4, margin=1.0, eps=None)
    return Oracle(**{**usual, **fields})


def test_it_fills_the_window_at_the_slowest_links_rate() -> None:
    controller = oracle()
    assert controller.density(None) == 0.001
    assert controller.density(one(0)) == pytest.approx((0.06 - 0.009) * 2e6 / 3e6)
    assert controller.state() == pytest.approx({"rate": 2e6, "latency": 0.009, "window": 0.06})


def test_it_knows_a_change_before_the_exchange_that_meets_it() -> None:
    """Half the rate, shared with one flow: a quarter from the next exchange on."""
    controller = oracle()
    calm = controller.density(one(0, time_s=99.0))
    assert controller.density(one(1, time_s=99.97)) == pytest.approx(calm / 4)


def test_a_change_inside_the_window_counts_for_its_share() -> None:
    """It begins 0.04 s after the last step: at 99.976 s two of five looks are still calm."""
    controller = oracle()
    controller.density(one(0, time_s=99.936))
    assert controller.state()["rate"] == pytest.approx((2 * 2e6 + 3 * 0.5e6) / 5)


def test_only_nodes_have_links() -> None:
    alone = Oracle(profile=Known(), workers=4, workers_per_node=4)
    alone.density(one(0))
    assert alone.state()["rate"] == pytest.approx(100e6 / 8)


def test_what_exchanges_take_beyond_the_profile_is_learned() -> None:
    controller = oracle()
    for step in range(10):
        controller.density(one(step, comm_s=0.009 + 30_000 / 2e6 + 0.004))
    assert controller.state()["latency"] == pytest.approx(0.013)


def test_with_an_elasticity_it_takes_the_density_of_most_progress_per_second() -> None:
    """With next to no window: d^eps / (0.1 + 0.009 + 1.5 d) is largest at d = eps T / (1 - eps)."""
    controller = oracle(eps=0.2, spacing=1.01)
    found = controller.density(one(0, overlap_window_s=0.0, exposed_s=0.024))
    assert found == pytest.approx(0.2 / 0.8 * 0.109 / 1.5, rel=0.01)


@pytest.mark.parametrize(("field", "message"), [
    ({"profile": None}, "profile must be a network profile, got None"),
    ({"workers": 0}, "workers must be a whole number >= 1, got 0"),
    ({"margin": 0}, r"margin must be in \(0, 1\], got 0"),
    ({"eps": 0}, "eps must be a number > 0, got 0"),
    ({"start": 0}, r"start must be .* in \(0, 1\], got \[0\]"),
    ({"spacing": 1.0}, "spacing must be a number > 1, got 1.0"),
])  # fmt: skip
def test_what_is_refused(field: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Oracle(**{"profile": Known(), "workers": 4, **field})
