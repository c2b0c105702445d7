"""Rates that are given: static, degrading, steps, square."""

from itertools import pairwise

import pytest

from profiles.degrading import Degrading
from profiles.square import Square
from profiles.static import Static
from profiles.steps import Steps

STEPS = [[0, 800], [60, 200], [90.5, 50]]


def test_static_rates_may_differ_by_node() -> None:
    profile = Static(rate_mbit=[100, 50], delay_ms=2.0, loss=0.01)  # type: ignore[arg-type]
    assert profile.link(9.0, 1, "up") == (50, 2.0, 0.0, 0.01, 0.0)
    assert profile.range_mbit() == (50, 100)
    with pytest.raises(ValueError, match=r"rate_mbit must have a rate for node 2, got \[100, 50\]"):
        profile.link(0.0, 2, "up")


def test_degrading_takes_every_step_and_stays_at_the_end() -> None:
    profile = Degrading(start_mbit=2000, end_mbit=300, step_mbit=200, step_s=60)
    seen = [profile.mbit(time_s, 0) for time_s in (0, 59.9, 60, 479, 480, 540, 1e6)]
    assert seen == [2000, 2000, 1800, 600, 400, 300, 300]
    assert profile.range_mbit() == (300, 2000)


def test_steps_begin_at_their_times_and_the_last_is_kept() -> None:
    profile = Steps(STEPS)  # type: ignore[arg-type]
    seen = [profile.mbit(time_s, 0) for time_s in (0, 59.9, 60, 90.4, 90.5, 1e6)]
    assert seen == [800, 800, 200, 200, 50, 50]
    assert profile.range_mbit() == (50, 800)


def test_steps_start_over() -> None:
    profile = Steps(STEPS, repeat_s=100)  # type: ignore[arg-type]
    assert all(
        profile.mbit(float(time_s), 0) == profile.mbit(time_s + 300.0, 5) for time_s in range(100)
    )
    assert [profile.mbit(time_s, 0) for time_s in (99.9, 100, 160)] == [50, 800, 200]


def test_a_square_wave_is_high_first_and_for_its_share() -> None:
    profile = Square(high_mbit=800, low_mbit=100, period_s=40, duty=0.25)
    seen = [profile.mbit(tick / 10, 0) for tick in range(4000)]
    assert seen[:400] == [800] * 100 + [100] * 300
    assert sum(after != before for before, after in pairwise(seen)) == 19
    assert seen.count(800) == 1000
