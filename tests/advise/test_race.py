"""The rule of the race on made-up times: who stays, who goes, and what is said of who is left."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.advise import race
from harness.advise.answer import answered, finalists, regret, regretted, sentences
from harness.reporting.analysis.decision import decide
from tests.claims.tables import row

INF = math.inf
TIMES = st.one_of(st.just(INF), st.floats(0.01, 1e4))
TABLES = st.integers(1, 6).flatmap(
    lambda pairs: st.dictionaries(
        st.sampled_from(["dense", "a", "b", "c", "d"]),
        st.lists(TIMES, min_size=pairs, max_size=pairs),
        min_size=1,
    )
)


def raced(table: dict[str, list[float]]) -> dict[str, list[float]]:
    """Pairs that each method ran, when all but dense are dropped as the rule says."""
    pairs, times, out = len(next(iter(table.values()))), {name: [] for name in table}, set[str]()
    for pair in range(pairs):
        for name in table.keys() - out:
            times[name].append(table[name][pair])
        going = {name: each for name, each in times.items() if name not in out}
        if race.leader(going) is None:
            break
        out |= race.dropped(going).keys() - {"dense"}
    return times


@given(
    st.integers(3, 6),
    st.floats(0.001, 0.3),
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=5),
    st.data(),
)
def test_who_is_best_by_more_than_times_scatter_stays_and_is_first(pairs, scatter, gaps, data):
    """Whatever a pair makes longer for all, and however the noise within `scatter` falls."""
    noise = st.lists(st.floats(-scatter / 2, scatter / 2), min_size=pairs, max_size=pairs)
    shared = data.draw(st.lists(st.floats(-2, 2), min_size=pairs, max_size=pairs))
    behind = {f"m{at}": 1.01 * scatter + gap for at, gap in enumerate(gaps)}
    table = {
        name: [
            math.exp(gap + of_all + own)
            for of_all, own in zip(shared, data.draw(noise), strict=True)
        ]
        for name, gap in {"best": 0.0, **behind}.items()
    }
    times = raced(table)
    assert len(times["best"]) == pairs
    assert answered(times).first == "best"


@given(TABLES)
def test_nobody_wins_who_misses_the_target_in_a_pair(table):
    times = raced(table)
    found = answered(times)
    if found.first is not None:
        assert all(map(math.isfinite, times[found.first]))
        assert all(race.reached(times[name]) for name in [*found.leads, *found.undecided])
    elif all(len(each) == len(table[name]) for name, each in times.items()):
        assert not any(map(race.reached, table.values()))


@given(TABLES)
def test_the_leader_is_never_dropped_and_who_is_dropped_is_behind_it(table):
    out = race.dropped(table)
    first = race.leader(table)
    assert first not in out
    for name in out:
        assert not race.reached(table[name]) or race.lead(table[name], table[first]).mean > 1


@given(TABLES)
def test_a_winner_is_told_only_where_no_interval_overlaps(table):
    found = answered(table)
    if found.first is None:
        return
    said = sentences(found, table, "accuracy 0.9", "dense", {})[0]
    overlap = [name for name, each in found.leads.items() if not each.low > 1]
    assert said.startswith("Undecided between") == bool(overlap)
    assert all(name in said for name in overlap)
    means = [each.mean for each in found.leads.values()]
    assert all(one <= other for one, other in pairwise(means))


def test_a_race_of_noisy_methods_seldom_loses_the_best():
    """5 % sooner than each of nine, with a scatter of 10 %: kept to the end in most races."""
    drawn, kept, races = np.random.default_rng(0), 0, 400
    for _ in range(races):
        logs = drawn.normal(0.05, 0.1, (10, 6))
        logs[0] -= 0.05
        table = {f"m{at}": list(np.exp(own)) for at, own in enumerate(logs)}
        kept += len(raced(table)["m0"]) == 6
    assert kept / races > 0.95


def test_what_is_equal_is_undecided_and_all_of_it_is_a_finalist():
    times = {"dense": [40.0, 42.0, 41.0], "a": [10.0, 11.0, 12.0], "b": [10.2, 10.9, 12.1]}
    found = answered(times)
    assert found.first == "a" and found.undecided == ["b"]
    assert finalists(found, "dense") == ["a", "b", "dense"]
    first, *rest = sentences(found, times, "accuracy 0.9", "dense", {})
    assert first.startswith("Undecided between a and b: a reaches accuracy 0.9 after 11 s (")
    assert rest[0].startswith("b takes 1.01 times as long (")
    assert rest[1].startswith("dense takes 3.74 times as long (")


def test_a_report_of_the_same_runs_says_the_same():
    """First, its time, and what the next takes: 5.26 and 5.32 were once said of one race."""
    times = {"a": [10.0, 25.0, 12.0], "b": [52.0, 90.0, 75.0]}
    runs = pd.DataFrame(
        [
            row("r", name, pair, time_to_target_s=time_s)
            for name, each in times.items()
            for pair, time_s in enumerate(each)
        ]
    )
    reported = decide(runs, 0.8, "b").standings
    found = answered(times)
    assert [each.method for each in reported] == [found.first, *found.leads]
    assert found.leads["b"][:3] == pytest.approx(reported[1].over_first[:3])
    told = f"{reported[0].time_s.mean:.3g} s ({reported[0].time_s.low:.3g} to "
    assert ", 3 seeds)" in sentences(found, times, "accuracy 0.8", "b", {})[0]
    assert told in sentences(found, times, "accuracy 0.8", "b", {})[0]


def test_packets_that_say_another_leave_it_undecided():
    times = {"dense": [40.0, 42.0, 41.0], "a": [10.0, 11.0, 12.0], "b": [15.0, 16.4, 17.9]}
    found = answered(times)
    alone = sentences(found, times, "accuracy 0.9", "dense", {"a": 11.0, "b": 16.0, "dense": INF})
    assert alone[0].startswith("a reaches accuracy 0.9 first, after 11 s (")
    assert alone[-1] == "Over packets, one pair: a 11 s, b 16 s, dense not reached."
    other = sentences(found, times, "accuracy 0.9", "dense", {"a": 11.0, "b": 10.0})
    assert other[0].startswith("Undecided between a and b: ")
    assert other[-1] == "Over packets, one pair: b 10 s, a 11 s; another is first there."


def test_nobody_at_the_target_is_no_winner():
    found = answered({"dense": [INF, 3.0], "a": [2.0, INF]})
    assert found.first is None and finalists(found, "dense") == []
    assert sentences(found, {}, "accuracy 0.9", "dense", {}) == [
        "No method reaches accuracy 0.9 with every seed: write a lower target, or more steps."
    ]


def test_regret_is_of_the_same_pairs():
    best, lost = regret([11.0, 22.0], {"a": [11.0, 22.0], "b": [10.0, 20.0], "c": [1.0, INF]})
    assert best == "b" and lost == pytest.approx(0.1)


def test_regret_is_told_of_what_misses_too():
    seeds = "seeds 10 to 11"
    said = regretted("a", {"a": [11.0, 22.0], "b": [10.0, 20.0]}, seeds)
    assert said.startswith("Regret of a: 10.0% against b, the best of all 2 by seeds 10 to 11")
    assert "misses the target" in regretted("a", {"a": [1.0, INF], "b": [10.0, 20.0]}, seeds)
    assert "unknown" in regretted("a", {"a": [1.0, INF], "b": [INF, 20.0]}, seeds)


def test_a_step_as_long_as_dense_s_may_win_by_a_fifth_of_its_steps_and_no_more():
    assert race.bound_s(1.0, 1.0, 10.0) == pytest.approx(8.0)
    assert race.bound_s(1.3, 1.0, 10.0) > 10 > race.bound_s(1.2, 1.0, 10.0)
