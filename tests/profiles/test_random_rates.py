"""Rates that are drawn: their laws, and their values, which no change may move.

Draws are seeded, so a tolerance decides once; each is about four standard errors.
"""

import math
import subprocess
import sys
from itertools import groupby
from statistics import correlation, fmean, pstdev
from typing import Any

import pytest

from profiles.contended import Contended
from profiles.fluctuating import Fluctuating
from profiles.loss_bursts import LossBursts
from profiles.markov import Markov
from profiles.noisy import Noisy
from profiles.ornstein_uhlenbeck import OrnsteinUhlenbeck
from profiles.static import Static

NODES = range(600)
UNIFORM = Fluctuating(low_mbit=100, high_mbit=900, min_s=10, max_s=30, seed=1)
TWO_STATES = Markov(good_mbit=500, bad_mbit=50, mean_good_s=20, mean_bad_s=5, seed=1)
WANDERING = OrnsteinUhlenbeck(
    mean_mbit=5000, deviation_mbit=100, correlation_s=20, low_mbit=1, high_mbit=10_000, seed=1
)
LOSSY = LossBursts(Static(100, loss=0.01), mean_gap_s=20, mean_burst_s=5, loss=0.1, seed=1)
COMPETING = Contended(Static(100), parallel=4, on_s=60, off_s=10, spread=0.5, seed=1)
RANDOM: dict[str, Any] = {"UNIFORM": UNIFORM, "TWO_STATES": TWO_STATES, "WANDERING": WANDERING,
                          "LOSSY": LOSSY}  # fmt: skip
LOOKS = [(time_s, node) for node in (0, 1) for time_s in (5000.0, 0.0, 100.0)]
PINNED_MBIT = {
    "UNIFORM": [118.18475, 405.02662, 272.232775, 792.432348, 599.881403, 545.948934],
    "TWO_STATES": [500.0, 50.0, 500.0, 500.0, 500.0, 50.0],
    "WANDERING": [4884.324211, 5081.551959, 4950.220479, 4964.652397, 4860.04524, 4906.108075],
}


def lengths_s(values: list[float]) -> list[tuple[float, int]]:
    """Each value and how many looks in a row it held; the first and last are cut, so left out."""
    return [(value, len(list(run))) for value, run in groupby(values)][1:-1]


def changes_s(values: list[Any]) -> list[float]:
    """When a series of looks, ten a second, changes."""
    return [tick / 10 for tick in range(1, len(values)) if values[tick] != values[tick - 1]]


@pytest.mark.parametrize("name", PINNED_MBIT)
def test_rates_are_pinned(name: str) -> None:
    """A change here changes every figure made with such a profile."""
    seen = [RANDOM[name].mbit(time_s, node) for time_s, node in LOOKS]
    assert [round(rate_mbit, 6) for rate_mbit in seen] == PINNED_MBIT[name]


def test_when_states_bursts_and_flows_change_is_pinned() -> None:
    ticks = [tick / 10 for tick in range(1000)]
    assert changes_s([TWO_STATES.mbit(time_s, 0) for time_s in ticks])[:4] == [2.5, 14, 17, 31.3]
    assert changes_s([LOSSY.link(time_s, 0, "up").loss for time_s in ticks]) == [
        31.1, 37.7, 93.0, 94.6,
    ]  # fmt: skip
    assert changes_s([COMPETING.flows(time_s) for time_s in ticks]) == [36.2, 47.6]


def test_values_are_equal_in_another_process() -> None:
    code = (
        "from tests.profiles.test_random_rates import LOOKS, RANDOM;"
        "print([[profile.link(*look, 'up') for look in LOOKS] for profile in RANDOM.values()])"
    )
    here = [[profile.link(*look, "up") for look in LOOKS] for profile in RANDOM.values()]
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here)


@pytest.mark.parametrize("name", RANDOM)
def test_nodes_differ_unless_shared_and_seeds_differ(name: str) -> None:
    def series(node: int, **changed: Any) -> list[Any]:
        profile = type(RANDOM[name])(
            **{
                field: changed.get(field, getattr(RANDOM[name], field))
                for field in RANDOM[name].__dataclass_fields__
            }
        )
        return [profile.link(float(time_s), node, "up") for time_s in range(500)]

    assert series(0) != series(1)
    assert series(0, shared=True) == series(1, shared=True)
    assert series(0, seed=2) != series(0)


def test_fluctuating_lengths_and_rates_are_uniform() -> None:
    runs = [run for node in range(20) for run in lengths_s(
        [UNIFORM.mbit(time_s / 4, node) for time_s in range(8000)])]  # fmt: skip
    assert 9.5 <= min(length for _, length in runs) / 4
    assert max(length for _, length in runs) / 4 <= 30.5
    assert fmean(length / 4 for _, length in runs) == pytest.approx(20, abs=0.6)
    assert fmean(rate for rate, _ in runs) == pytest.approx(500, abs=21)
    assert pstdev(rate for rate, _ in runs) == pytest.approx(800 / math.sqrt(12), abs=11)


@pytest.mark.parametrize("time_s", [0.0, 7.0, 900.0])
def test_markov_is_stationary(time_s: float) -> None:
    """Its share of good nodes is 20 / (20 + 5) at any time, the first included."""
    good = fmean(TWO_STATES.mbit(time_s, node) == 500 for node in NODES)
    assert good == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / len(NODES)))


def test_markov_holds_each_state_for_an_exponential_time() -> None:
    runs = [run for node in range(20) for run in lengths_s(
        [TWO_STATES.mbit(tick / 10, node) for tick in range(10_000)])]  # fmt: skip
    for rate, mean_s in ((500, 20), (50, 5)):
        held_s = [length / 10 for value, length in runs if value == rate]
        assert fmean(held_s) == pytest.approx(mean_s, rel=4 / math.sqrt(len(held_s)))
        assert pstdev(held_s) == pytest.approx(mean_s, rel=8 / math.sqrt(len(held_s)))


@pytest.mark.parametrize("time_s", [0.0, 7.0, 900.0])
def test_ornstein_uhlenbeck_is_stationary(time_s: float) -> None:
    rates = [WANDERING.mbit(time_s, node) for node in NODES]
    assert fmean(rates) == pytest.approx(5000, abs=4 * 100 / math.sqrt(len(NODES)))
    assert pstdev(rates) == pytest.approx(100, rel=4 / math.sqrt(2 * len(NODES)))


@pytest.mark.parametrize("step_s", [1.0, 10.0])
def test_ornstein_uhlenbeck_forgets_alike_on_every_grid(step_s: float) -> None:
    profile = OrnsteinUhlenbeck(5000, 100, 20, 1, 10_000, step_s=step_s, seed=2)
    series = [[profile.mbit(10.0 * look, node) for look in range(100)] for node in range(100)]
    for lag in (1, 2, 6):
        expected = math.exp(-lag * 10 / 20)
        found = correlation(
            [rate for rates in series for rate in rates[:-lag]],
            [rate for rates in series for rate in rates[lag:]],
        )
        assert found == pytest.approx(expected, abs=4 * standard_error(lag, 100 * (100 - lag)))


def standard_error(lag: int, looks: int, kept: float = math.exp(-10 / 20)) -> float:
    """Of the correlation found at `lag` in a first-order autoregression (Bartlett, 1946)."""
    fading = kept ** (2 * lag)
    return math.sqrt(((1 + kept**2) * (1 - fading) / (1 - kept**2) - 2 * lag * fading) / looks)


def test_ornstein_uhlenbeck_is_cut_without_changing_its_course() -> None:
    cut = OrnsteinUhlenbeck(5000, 100, 20, 4950, 5020, seed=1)
    for time_s in range(1000):
        wanted = min(5020, max(4950, WANDERING.mbit(float(time_s), 3)))
        assert cut.mbit(float(time_s), 3) == wanted


def test_noise_is_lognormal_and_slow_for_its_share() -> None:
    noisy = Noisy(Static(100), deviation=0.1, hold_s=0.5, slow_share=0.05, slow_factor=10, seed=1)
    rates = [noisy.link(time_s / 2, 3, "up").rate_mbit for time_s in range(20_000)]
    slow = [rate for rate in rates if rate < 30]
    assert len(slow) / len(rates) == pytest.approx(0.05, abs=0.006)
    logs = [math.log(rate / 100) for rate in rates if rate > 30]
    assert fmean(logs) == pytest.approx(0, abs=0.003)
    assert pstdev(logs) == pytest.approx(0.1, abs=0.002)
    assert correlation(logs[1:], logs[:-1]) == pytest.approx(0, abs=0.03)
    assert noisy.link(7.0, 3, "up") == noisy.link(7.49, 3, "down") != noisy.link(7.5, 3, "up")
    assert noisy.link(7.0, 3, "up") != noisy.link(7.0, 4, "up")


def test_loss_bursts_take_their_share_and_add_to_the_loss() -> None:
    losses = [LOSSY.link(500.0, node, "up").loss for node in NODES]
    assert set(losses) == {0.01, 1 - (1 - 0.01) * (1 - 0.1)}
    share = fmean(loss > 0.05 for loss in losses)
    assert share == pytest.approx(0.2, abs=4 * math.sqrt(0.2 * 0.8 / len(NODES)))
    assert all(LOSSY.link(0.0, node, "up").loss == 0.01 for node in NODES)  # a gap comes first
    assert all(LOSSY.link(500.0, node, "up") == LOSSY.link(500.0, node, "down") for node in NODES)


def test_competing_flows_come_and_go_on_schedule() -> None:
    exact = Contended(Static(100), parallel=8, on_s=60, off_s=10, start_s=5, cycles=2)
    seen = [exact.flows(float(time_s)) for time_s in range(300)]
    assert seen == [0] * 5 + [8] * 60 + [0] * 10 + [8] * 60 + [0] * 165
    assert exact.extremes().flows == 8
    assert Contended(exact, parallel=2).flows(10.0) == 10


def test_one_flow_more_comes_each_time_up_to_the_most_and_then_as_at_first() -> None:
    rising = Contended(Static(100), parallel=2, up_to=4, on_s=60, off_s=10)
    assert [rising.flows(70.0 * coming + 30) for coming in range(5)] == [2, 3, 4, 2, 3]
    assert rising.flows(65.0) == 0 and rising.extremes().flows == 4


def test_spread_lengths_stay_within_their_share() -> None:
    runs = lengths_s([float(COMPETING.flows(tick / 10)) for tick in range(100_000)])
    for flows, mean_s in ((4, 60), (0, 10)):
        held_s = [length / 10 for value, length in runs if value == flows]
        assert 0.5 * mean_s - 0.1 <= min(held_s) <= max(held_s) <= 1.5 * mean_s + 0.1
        assert fmean(held_s) == pytest.approx(mean_s, rel=4 * 0.29 / math.sqrt(len(held_s)))
