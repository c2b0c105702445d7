"""Ratios of methods, paired by seed, on rows whose answer is known."""

from itertools import combinations
from math import inf, isnan, nan

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reporting.analysis import load, metrics, ratios
from harness.reporting.analysis.regret import regret
from tests import records_by_hand as by_hand
from tests.analysis.t_interval import of_two
from tests.claims.tables import row


def rows(method: str, *values: float, column: str = "throughput", **known) -> list[dict]:
    return [row("by_hand", method, seed, **{column: v}, **known) for seed, v in enumerate(values)]


def test_ratios_are_taken_seed_by_seed():
    table = pd.DataFrame(rows("a", 10.0, 40.0, 99.0) + rows("b", 10.0, 10.0))
    # 1 and 4; the ratio of the means would be 2.5 too, so ask b / a.
    found = ratios.paired(table, "throughput", "a", "b")
    assert found[:3] == pytest.approx((2.5, *of_two(1, 4)))
    assert found[3:5] == (2, "")
    assert ratios.paired(table, "throughput", "b", "a").mean == pytest.approx((1 + 0.25) / 2)


def test_one_seed_has_no_interval_and_no_seed_no_ratio():
    table = pd.DataFrame(rows("a", 10.0) + rows("b", 5.0))
    found = ratios.paired(table, "throughput", "a", "b")
    assert found.mean == 2 and isnan(found.low) and found.seeds == 1
    assert ratios.paired(table, "throughput", "a", "c").seeds == 0


def test_nothing_over_nothing_is_left_out_and_something_is_infinite():
    table = pd.DataFrame(rows("a", 0.0, 1.0, nan) + rows("b", 0.0, 0.0, 1.0))
    found = ratios.paired(table, "throughput", "a", "b")
    assert found.mean == inf and found.seeds == 1
    table = pd.DataFrame(rows("a", 1.0, 1.0) + rows("b", 0.0, 1.0))
    assert ratios.paired(table, "throughput", "a", "b").mean == inf


@pytest.mark.parametrize(
    ("reached_a", "reached_b", "bound"),
    [(True, True, ""), (False, True, "low"), (True, False, "high"), (False, False, "unknown")],
)
@pytest.mark.parametrize("column", ["time_to_target_s", "convergence_s"])
def test_censored_times_are_bounds_without_interval(column, reached_a, reached_b, bound):
    met = ratios.REACHED[column]
    a = rows("a", 30.0, 30.0, column=column)
    b = rows("b", 10.0, 10.0, column=column)
    a[1][met], b[1][met] = reached_a, reached_b
    found = ratios.paired(pd.DataFrame(a + b), column, "a", "b")
    assert (found.mean, found.bound, found.seeds) == (3, bound, 2)
    assert isnan(found.low) == bool(bound)


def test_runs_are_paired_by_both_seeds():
    nets = [
        row("by_hand", m, 0, network_seed=n, throughput=x)
        for m, n, x in (("a", 0, 2.0), ("a", 1, 9.0), ("b", 1, 3.0), ("b", 0, 1.0), ("b", 2, 1.0))
    ]
    found = ratios.paired(pd.DataFrame(nets), "throughput", "a", "b")
    assert (found.mean, found.seeds) == (2.5, 2)


def test_two_runs_of_one_seed_are_refused():
    table = pd.DataFrame(rows("a", 1.0) + rows("a", 2.0) + rows("b", 1.0))
    with pytest.raises(ValueError, match="a must have one run a pair"):
        ratios.paired(table, "throughput", "a", "b")


def test_competitors_are_stopped_when_the_leader_has_its_best(tmp_path):
    # The leader is at its best, 0.90 and 0.91, after 10 s; the other has 0.6 then, later 0.9.
    by_hand.sweep(tmp_path / "sweep", {"leader": 1.0, "slow": 2.0, "slower": 4.0})
    table = metrics.table(load.runs(tmp_path))
    found = ratios.stopped(table, "leader").set_index(["method", "seed"])
    assert found.best["leader", 0] == 0.9 and found.best["leader", 1] == 0.91
    assert found.best["slow", 1] == 0.61 and found.best_s["slow", 1] == 10
    assert isnan(found.best["slower", 0])
    assert table[table.method == "slow"].best.tolist() == [0.9, 0.91]


SEEDS = st.dictionaries(
    st.sampled_from("abcde"), st.sets(st.integers(0, 5), min_size=1), min_size=1
)


@given(SEEDS)
def test_a_block_has_every_seed_of_each_of_its_methods(seeds):
    table = pd.DataFrame(
        row("by_hand", method, seed) for method, those in seeds.items() for seed in those
    )
    block = ratios.seed_block(table)
    assert block.of == len(set().union(*seeds.values()))
    kept = block.rows(table)
    assert len(kept) == len(block.methods) * len(block.pairs)
    shared = max((len(seeds[a] & seeds[b]) for a, b in combinations(seeds, 2)), default=0)
    if len(seeds) > 1:
        assert len(block.methods) > 1 and 3 * len(block.pairs) >= 2 * shared
    for method in set(seeds) - block.methods:
        assert not block.pairs <= {(seed, seed) for seed in seeds[method]}


def test_scaling_compares_the_seeds_that_all_numbers_of_workers_have():
    runs = {2: {0: 20.0, 1: 90.0}, 4: {0: 40.0}, 8: {0: 60.0, 2: 1.0}}
    table = pd.DataFrame(
        row("by_hand", "a", seed, workers=n, throughput=x, conditions={"workers": n})
        for n, of_seeds in runs.items()
        for seed, x in of_seeds.items()
    )
    assert ratios.scaling(table).throughput.tolist() == [20, 40, 60]


def test_scaling_is_held_against_the_fewest_workers():
    sizes = {2: 20.0, 8: 60.0, 4: 40.0}
    table = pd.DataFrame(
        row("by_hand", "a", seed, workers=n, throughput=x, conditions={"workers": n, "steps": 1})
        for n, x in sizes.items()
        for seed in (0, 1)
    )
    other = row("by_hand", "a", workers=2, throughput=99.0, conditions={"workers": 2, "steps": 9})
    found = ratios.scaling(pd.concat([table, pd.DataFrame([other])]))
    assert found.workers.tolist() == [2, 4, 8, 2]
    assert found.of_linear.tolist() == pytest.approx([1, 1, 0.75, 1])
    assert found.throughput.tolist() == [20, 40, 60, 99]


def runs(method: str, seed: int = 0, **known) -> dict:
    return row("by_hand", method, seed, **known)


def found(*rows: dict) -> pd.DataFrame:
    return regret(pd.DataFrame(rows)).set_index(["method", "seed"])


def test_it_is_the_extra_time_to_the_target_of_the_same_seed():
    table = found(runs("oracle", 0, time_to_target_s=50.0),
                  runs("oracle", 1, time_to_target_s=100.0), runs("pace", 0, time_to_target_s=60.0),
                  runs("pace", 1, time_to_target_s=110.0), runs("pace", 2),
                  row("elsewhere", "pace"))  # fmt: skip
    assert table.regret.tolist() == pytest.approx([0.2, 0.1])
    assert set(table.by) == {"time_to_target_s"} and set(table.bound) == {""}


def test_without_a_target_the_whole_time_counts():
    none = {"time_to_target_s": float("nan"), "reached": False}
    table = found(runs("oracle", time_s=80.0, **none), runs("pace", time_s=100.0, **none))
    assert table.regret["pace", 0] == pytest.approx(0.25) and table.by["pace", 0] == "time_s"


@pytest.mark.parametrize(("own", "oracle", "by", "bound", "expected"), [
    (False, True, "time_to_target_s", "low", 1.0),
    (True, False, "time_to_target_s", "high", 1.0),
    (False, False, "time_s", "", 0.5),
])  # fmt: skip
def test_a_missed_target_makes_a_bound(own, oracle, by, bound, expected):
    table = found(runs("oracle", time_s=100.0, time_to_target_s=40.0, reached=oracle),
                  runs("pace", time_s=150.0, time_to_target_s=80.0, reached=own))  # fmt: skip
    assert tuple(table.loc[("pace", 0), ["by", "bound"]]) == (by, bound)
    assert table.regret["pace", 0] == pytest.approx(expected)


def test_without_an_oracle_there_is_none():
    assert found(runs("pace")).empty
