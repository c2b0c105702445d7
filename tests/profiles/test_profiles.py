"""What single profiles do, and what they refuse."""

import pickle
import subprocess
import sys
from itertools import pairwise

import pytest

from profiles.degrading import Degrading
from profiles.fluctuating import Fluctuating
from profiles.static import Static

DYNAMIC = Fluctuating(low_mbit=100, high_mbit=900, min_s=10, max_s=30, seed=1)
PINNED_MBIT = [118.18475, 405.02662, 272.232775, 792.432348, 599.881403, 545.948934]


def rates(profile: Fluctuating, node: int, seconds: int = 2000) -> list[float]:
    return [profile.link(float(second), node, "up").rate_mbit for second in range(seconds)]


def test_static_rates_may_differ_by_node() -> None:
    profile = Static(rate_mbit=[100, 50], delay_ms=2.0, loss=0.01)  # type: ignore[arg-type]
    assert profile.link(9.0, 1, "up") == (50, 2.0, 0.0, 0.01, 0.0)
    assert profile.range_mbit() == (50, 100)
    with pytest.raises(ValueError, match=r"rate_mbit must have a rate for node 2, got \[100, 50\]"):
        profile.link(0.0, 2, "up")


def test_degrading_takes_every_step_and_stays_at_the_end() -> None:
    profile = Degrading(start_mbit=2000, end_mbit=300, step_mbit=200, step_s=60)
    seen = [profile.link(time_s, 0, "up").rate_mbit for time_s in (0, 59.9, 60, 479, 480, 540, 1e6)]
    assert seen == [2000, 2000, 1800, 600, 400, 300, 300]
    assert profile.range_mbit() == (300, 2000)


def test_fluctuating_segments_have_their_lengths() -> None:
    series = rates(DYNAMIC, 0)
    changes = [second for second in range(1, len(series)) if series[second] != series[second - 1]]
    lengths = [after - before for before, after in pairwise(changes)]
    assert 9 <= min(lengths) and max(lengths) <= 31
    assert sum(lengths) / len(lengths) == pytest.approx(20, abs=2)
    assert sum(series) / len(series) == pytest.approx(500, abs=100)


def test_nodes_differ_unless_shared() -> None:
    assert rates(DYNAMIC, 0) != rates(DYNAMIC, 1)
    shared = Fluctuating(100, 900, 10, 30, seed=1, shared=True)
    assert rates(shared, 0) == rates(shared, 1)


def test_the_seed_is_all_that_matters() -> None:
    assert rates(DYNAMIC, 0) == rates(pickle.loads(pickle.dumps(DYNAMIC)), 0)
    assert rates(DYNAMIC, 0) != rates(Fluctuating(100, 900, 10, 30, seed=2), 0)


def test_rates_are_pinned_and_equal_in_another_process() -> None:
    """A change here changes every published figure with this profile."""
    code = (
        "from profiles.fluctuating import Fluctuating as F; p = F(100, 900, 10, 30, seed=1);"
        "print([round(p.mbit(t, n), 6) for n in (0, 1) for t in (5000.0, 0.0, 100.0)])"
    )
    here = [
        round(DYNAMIC.link(t, n, "up").rate_mbit, 6) for n in (0, 1) for t in (5000.0, 0.0, 100.0)
    ]
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here)
    assert here == PINNED_MBIT
