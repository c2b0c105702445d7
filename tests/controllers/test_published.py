"""Kimad, DeCo, GraVAC and Accordion against their rules on series made by hand."""

import random
from dataclasses import replace
from typing import Any

import pytest

from controllers.accordion import Accordion, NormChange
from controllers.base import Observation
from controllers.deco import DeCo
from controllers.gravac import GraVAC
from controllers.kimad import Kimad
from tests.controllers.observations import seen


def densities(controller: Any, past: list[Observation]) -> list[float]:
    return [controller.density(one) for one in (None, *past)]


def transfers(steps: int) -> list[Observation]:
    """3 MB a unit of density over links of a random rate, 10 ms latency."""
    source = random.Random(steps)
    made = []
    for step in range(steps):
        density = source.uniform(0.001, 0.1)
        received = int(3e6 * density)
        made.append(seen(step, density=density, received_bytes=received,
                         comm_s=0.01 + received / source.uniform(1e6, 2e6),
                         compute_s=source.uniform(0.08, 0.12), overlap_window_s=0.061,
                         compress_s=0.001))  # fmt: skip
    return made


@pytest.mark.parametrize("budget", ["compute", "hiding"])
def test_kimad_spends_the_budget_at_the_mean_bandwidth(budget: str) -> None:
    past = transfers(40)
    found = densities(Kimad(budget=budget, window=4), past)
    assert found[0] == 0.01
    for count in range(1, len(past) + 1):
        last = past[:count][-4:]
        bandwidth = sum(one.received_bytes / one.comm_s for one in last) / len(last)
        budget_s = past[count - 1].compute_s if budget == "compute" else 0.06
        expected = bandwidth * budget_s / 3e6
        assert found[count] == pytest.approx(min(1.0, max(0.001, expected)), rel=1e-3)


def test_deco_plans_after_the_start_and_then_every_so_often() -> None:
    past = transfers(30)
    controller = DeCo(every=10)
    found = densities(controller, past)
    assert found[:2] == [0.001, 0.01]
    for first, last in ((0, 2), (2, 12), (12, 22)):
        assert len(set(found[last : last + 10][: 31 - last])) == 1
        replayed = DeCo(every=10)
        densities(replayed, past[:last])
        b = replayed.state()["latency"]
        since = past[first:last]
        bandwidth = sum(one.received_bytes for one in since) / sum(one.comm_s - b for one in since)
        compute_s = sum(one.compute_s for one in since) / len(since)
        assert found[last] == pytest.approx(bandwidth * (compute_s - b) / 3e6, rel=1e-3)
        assert replayed.state()["bandwidth"] == pytest.approx(bandwidth)


def test_a_lost_link_is_answered_with_the_floor() -> None:
    lost = [seen(step, comm_s=1e9, received_bytes=1000, density=0.01) for step in range(30)]
    assert densities(Kimad(), lost)[-1] == densities(DeCo(), lost)[-1] == 0.001


def stretch(steps: int, gain: float, seconds: float) -> list[Observation]:
    """`gain` is a ratio of norms; the observation has squares."""
    took = dict(compute_s=seconds - 0.02, compress_s=0.01, exposed_s=0.01)
    return [seen(step, gain=gain**2, **took) for step in range(steps)]


def by_stretch(controller: GraVAC, *stretches: tuple[float, float]) -> list[float]:
    """Density of every stretch of 5, the first before any; each is (gain, seconds of a step)."""
    found = [controller.density(None)]
    for gain, seconds in stretches:
        asked = [controller.density(one) for one in stretch(5, gain, seconds)]
        assert set(asked[:-1]) == {found[-1]}
        found.append(asked[-1])
    return found


def test_gravac_halves_while_throughput_rises() -> None:
    """Throughputs 10, 0.9/0.08 = 11.25, 0.8/0.0711 = 11.252: less than 1 % more ends the search."""
    found = by_stretch(
        GraVAC(window=5), (1.0, 0.1), (0.9, 0.08), (0.8, 0.0711), (0.8, 1.0), (0.8, 0.05)
    )
    assert found == [0.1, 0.05, 0.025, 0.05, 0.05, 0.05]


def test_gravac_ends_at_the_most_compression() -> None:
    found = by_stretch(GraVAC(window=5, d_min=0.03), *[(1.0, 1 / n) for n in range(9, 15)])
    assert found == [0.1, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03]


def test_gravac_does_not_go_where_the_gain_is_too_small() -> None:
    found = by_stretch(GraVAC(window=5), (1.0, 0.1), (0.69, 0.01), (1.0, 0.1))
    assert found == [0.1, 0.05, 0.1, 0.1]


def test_gravac_falls_back_and_returns() -> None:
    controller = GraVAC(window=5, d_min=0.05)
    search = [(1.0, 0.1), (1.0, 0.05)]
    falls = [(0.5, 0.05), (0.5, 0.05), (1.0, 0.1), (0.9, 0.05)]
    assert by_stretch(controller, *search, *falls) == [0.1, 0.05, 0.05, 0.1, 1.0, 0.05, 0.05]


def test_gravac_is_dense_where_even_the_least_compression_loses_too_much() -> None:
    assert by_stretch(GraVAC(window=5), (0.5, 0.1), (1.2, 0.1)) == [0.1, 1.0, 0.1]


def test_accordion_compresses_little_where_the_norm_changes() -> None:
    """Mean norms of stretches 4, 4, 1.9, 1.9: relative changes 0, 0.525, 0."""
    norms = [3.0, 5.0, 4.0, 4.0, 1.9, 1.9, 1.8, 2.0, 1.9, 1.9]
    past = [seen(step, grad_norm=norm) for step, norm in enumerate(norms)]
    found = densities(Accordion(window=2), past)
    assert found == [0.1] * 4 + [0.01] * 2 + [0.1] * 2 + [0.01] * 3
    assert Accordion.needs_norms and GraVAC.needs_norms


def test_a_norm_that_is_not_finite_does_not_count() -> None:
    change = NormChange(3)
    for norm in (1.0, float("nan"), 3.0, 4.0, float("inf"), 4.0):
        change.update(norm)
    assert change.ratio == pytest.approx(1.4)  # means 5/3 (1, 1, 3) and 4
    zeros = NormChange(1)
    for _ in range(3):
        zeros.update(0.0)
    assert zeros.ratio == 0.0


def test_their_states() -> None:
    kimad, accordion, gravac = Kimad(), Accordion(window=1), GraVAC(window=1)
    assert kimad.state() == accordion.state() == gravac.state() == DeCo().state() == {}
    one = seen(0, received_bytes=100, comm_s=0.5, grad_norm=2.0, gain=0.64, compress_s=0.0)
    one = replace(one, compute_s=0.1, exposed_s=0.1)
    for controller in (kimad, accordion, gravac):
        controller.density(one)
    accordion.density(replace(one, grad_norm=1.0))
    assert kimad.state() == {"bandwidth": 200}
    assert accordion.state() == {"change": 0.5}
    assert gravac.state() == pytest.approx({"gain": 0.8, "throughput": 4.0})
