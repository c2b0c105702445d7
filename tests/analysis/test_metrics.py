"""Every metric on hand-made records whose answer is known."""

from dataclasses import replace
from math import inf, isnan, nan

import pandas as pd
import pytest

from harness.records import columns
from harness.records.run_directory import Evaluation, Step
from harness.reporting.analysis import load, metrics
from harness.reporting.analysis.load import RunRow
from tests import records_by_hand as by_hand
from tests.analysis.t_interval import of_two


def steps_of(*rows: Step) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[*columns.of(Step)])


def evaluations_of(*values: float, metric: str = "accuracy") -> pd.DataFrame:
    """An evaluation every 10 steps and 5 s."""
    rows = [Evaluation(10 * n, 5.0 * n, metric, value) for n, value in enumerate(values, 1)]
    return pd.DataFrame(rows, columns=Evaluation._fields)


def measured(method: str, seed: int, **known) -> dict:
    """One row of `metrics.RunMetrics`: accuracy 0.9 after 100 s at 50 samples/s."""
    usual = dict.fromkeys([*metrics.RunMetrics._fields, *metrics.MEANS], 0.0)
    usual |= {"dense": method == "allreduce", "overlap": "per_bucket"}
    usual |= {
        "method": method,
        "seed": seed,
        "network_seed": seed,
        "metric": "accuracy",
        "final": 0.9,
        "time_s": 100.0,
    }
    return {**usual, "diverged": False, "reached": True, "throughput": 50.0, **known}


def test_throughput_counts_all_workers_and_leaves_out_two_steps():
    # Ten seconds for each of the first two steps, then 0.5 s: 2 workers x 10 samples / 0.5 s.
    rows = [
        by_hand.step(n, rank, time_s=10.0 * (n + 1) if n < 2 else 20 + 0.5 * (n - 1))
        for n in range(6)
        for rank in range(2)
    ]
    assert metrics.throughput(steps_of(*rows)) == pytest.approx(40)
    assert metrics.total_time_s(steps_of(*rows)) == 22


def test_throughput_of_a_run_of_two_steps_is_unknown():
    assert isnan(metrics.throughput(steps_of(by_hand.step(0), by_hand.step(1))))


def test_a_step_ends_when_its_slowest_worker_does():
    rows = [by_hand.step(n, rank, time_s=n + 1 + 0.5 * rank) for n in range(4) for rank in range(2)]
    assert metrics.total_time_s(steps_of(*rows)) == 4.5
    assert metrics.iteration_s(steps_of(*rows)) == pytest.approx(1)


def test_means_of_steps_leave_out_two_steps():
    rows = [by_hand.step(n, compute_s=9.0 if n < 2 else 0.2 + 0.1 * n) for n in range(4)]
    parts = metrics.means(steps_of(*rows))
    expected = dict(compute_before_first_bucket_s=0.1, compute_s=0.45, compress_s=0.05)
    assert parts == pytest.approx(expected | {"exposed_s": 0.15})
    assert metrics.iteration_s(steps_of(*rows)) == pytest.approx(0.5)


def test_volume_ratio_is_one_for_a_ring_all_reduce():
    rows = [by_hand.step(0, rank, sent_bytes=1500, dense_bytes=1000) for rank in range(4)]
    assert metrics.volume_ratio(steps_of(*rows)) == 1
    halved = [replace(row, sent_bytes=750) for row in rows]
    assert metrics.volume_ratio(steps_of(*halved)) == 0.5
    assert isnan(metrics.volume_ratio(steps_of(rows[0])))


def test_final_value_is_the_last_evaluation_of_the_metric():
    both = pd.concat([evaluations_of(0.5, 0.7), evaluations_of(9.0, metric="loss")])
    assert metrics.final_value(both, "accuracy") == 0.7
    assert isnan(metrics.final_value(both, "perplexity"))


def test_time_to_target_is_the_first_evaluation_that_met_it():
    seen = evaluations_of(0.5, 0.8, 0.7, 0.9)
    assert metrics.time_to_target(seen, "accuracy", 0.8, 21.0) == (10.0, True, 5.0)
    assert metrics.time_to_target(seen, "accuracy", 0.5, 21.0) == (5.0, True, 0.0)
    falling = evaluations_of(200.0, 90.0, 80.0, metric="perplexity")
    assert metrics.time_to_target(falling, "perplexity", 85.0, 16.0) == (15.0, True, 10.0)


def test_a_target_not_reached_is_censored_at_the_end_of_the_run():
    seen = evaluations_of(0.5, 0.8)
    assert metrics.time_to_target(seen, "accuracy", 0.9, 11.0)[:2] == (11.0, False)


@pytest.mark.parametrize("target", [None, nan])
def test_without_target_or_evaluations_there_is_no_time_to_target(target):
    assert isnan(metrics.time_to_target(evaluations_of(0.5), "accuracy", target, 11.0).time_s)
    assert isnan(metrics.time_to_target(evaluations_of(), "accuracy", 0.5, 11.0).time_s)


def test_it_converged_when_it_stays_at_its_target():
    seen = evaluations_of(0.5, 0.8, 0.7, 0.9, 0.8)
    assert metrics.convergence_time(seen, "accuracy", 0.8, 26.0)[:2] == (20.0, True)
    assert metrics.convergence_time(seen, "accuracy", 0.5, 26.0)[:2] == (5.0, True)
    assert metrics.convergence_time(seen, "accuracy", 0.85, 26.0)[:2] == (26.0, False)
    falling = evaluations_of(80.0, 90.0, 80.0, metric="perplexity")
    assert metrics.convergence_time(falling, "perplexity", 85.0, 16.0)[:2] == (15.0, True)
    assert isnan(metrics.convergence_time(seen, "accuracy", None, 26.0).time_s)
    missing = evaluations_of(0.9, nan, 0.9)
    assert metrics.convergence_time(missing, "accuracy", 0.8, 16.0)[:2] == (15.0, True)


def test_the_best_value_is_told_with_the_first_time_it_was_met():
    seen = evaluations_of(0.5, 0.9, nan, 0.9)
    assert metrics.best_value(seen, "accuracy") == (0.9, 10)
    assert metrics.best_value(seen, "accuracy", until_s=9.9) == (0.5, 5)
    assert isnan(metrics.best_value(seen, "accuracy", until_s=4.9)[0])
    assert metrics.best_value(evaluations_of(9.0, 7.0, metric="loss"), "loss") == (7, 10)


def test_ccr_and_goodput():
    rows = [
        by_hand.step(n, rank, comm_s=9.0 if n < 2 else 0.6, received_bytes=125_000)
        for n in range(10)
        for rank in range(2)
    ]
    assert metrics.ccr(steps_of(*rows)) == pytest.approx(2)  # 0.6 over 0.3
    assert metrics.goodput_mbit(steps_of(*rows)) == pytest.approx(2)  # 10 Mbit in 5 s
    assert isnan(metrics.ccr(steps_of(*[by_hand.step(n, compute_s=0.0) for n in range(4)])))


@pytest.mark.parametrize("loss", [nan, inf])
def test_a_run_whose_loss_or_quality_ends_non_finite_diverged(loss):
    good, bad = steps_of(by_hand.step(0)), steps_of(by_hand.step(0), by_hand.step(1, 1, loss=loss))
    seen = evaluations_of(0.5)
    assert metrics.diverged(bad, seen, "accuracy", replay=False)
    assert not metrics.diverged(bad, seen, "accuracy", replay=True)
    assert not metrics.diverged(good, seen, "accuracy", replay=False)
    assert metrics.diverged(good, evaluations_of(loss), "accuracy", replay=False)


def test_normalised_columns_pair_runs_by_seed():
    table = pd.DataFrame([measured("allreduce", 0, final=0.8, time_s=100.0),
                          measured("allreduce", 1, final=0.9, time_s=200.0, throughput=25.0),
                          measured("topk", 1, final=0.45, time_s=50.0),
                          measured("topk", 0, final=0.8, time_s=50.0),
                          measured("topk", 2)])  # fmt: skip
    paired = metrics.normalise(table)
    assert paired.speedup.tolist()[:4] == pytest.approx([1, 1, 2, 2])
    assert paired.normalised_throughput.tolist()[:4] == pytest.approx([1, 1, 2, 1])
    assert isnan(paired.speedup[4]) and isnan(paired.normalised_throughput[4])


def test_perplexity_counts_by_its_inverse_and_divergence_as_nothing():
    rows = [measured("allreduce", 0, metric="test_perplexity", final=100.0),
            measured("topk", 0, metric="test_perplexity", final=50.0),
            measured("randomk", 0, metric="test_perplexity", final=nan, diverged=True)]  # fmt: skip
    assert metrics.normalise(pd.DataFrame(rows)).speedup.tolist() == pytest.approx([1, 2, 0])


def test_a_missing_or_diverged_baseline_leaves_normalised_columns_empty():
    alone = metrics.compare(pd.DataFrame([measured("topk", 0), measured("topk", 1)]))
    assert alone[["speedup", "normalised_throughput"]].isna().all(axis=None)
    assert alone.throughput.tolist() == [50]
    useless = [measured("allreduce", 0, diverged=True), measured("topk", 0)]
    assert metrics.normalise(pd.DataFrame(useless)).speedup.isna().all()


def test_compare_lists_the_baseline_first_with_means_and_censoring():
    rows = [measured("a", seed, final=0.5 + seed, time_to_target_s=10.0) for seed in (0, 1)]
    rows += [measured("allreduce", seed, time_to_target_s=20.0) for seed in (0, 1)]
    rows += [measured("b", 0, time_to_target_s=4.0)]
    rows += [measured("b", 1, time_to_target_s=8.0, reached=False)]
    table = metrics.compare(pd.DataFrame(rows)).set_index("method")
    assert list(table.index) == ["allreduce", "a", "b"]
    row = table.loc["a"]
    assert row[["seeds", "final"]].tolist() == [2, 1]
    assert tuple(row[["final_low", "final_high"]]) == pytest.approx(of_two(0.5, 1.5))
    assert table.loc["a", ["time_to_target_s", "time_to_target_s_low"]].tolist() == [10, 10]
    assert table.loc["b", ["reached", "time_to_target_s"]].tolist() == [1, 6]
    assert isnan(table.loc["b", "time_to_target_s_low"])


def test_measure_gathers_the_metrics_of_a_run():
    run = RunRow._make(dict.fromkeys(RunRow._fields).values())._replace(
        method="topk", seed=3, network_seed=3, metric="accuracy", target=0.8, compute="measured"
    )
    rows = [by_hand.step(n, rank) for n in range(10) for rank in range(2)]
    found = metrics.measure(run, steps_of(*rows), evaluations_of(0.8))
    assert found.method == "topk" and found.reached and not found.diverged
    assert (found.time_s, found.throughput, found.final) == pytest.approx((5, 40, 0.8))
    assert (found.density, found.volume_ratio, found.iteration_s) == pytest.approx((0.1, 0.1, 0.5))


def test_curve_averages_seeds_by_step():
    seeds = pd.concat(
        [evaluations_of(0.2, 0.6), evaluations_of(0.4, 0.8).assign(time_s=[7.0, 14.0])]
    )
    found = metrics.curve(seeds)
    assert found.time_s.tolist() == [6, 12] and found.value.tolist() == pytest.approx([0.3, 0.7])
    assert found.low.tolist() == pytest.approx([of_two(0.2, 0.4)[0], of_two(0.6, 0.8)[0]])
    assert metrics.curve(evaluations_of()).empty


def test_many_sweeps_become_one_table(tmp_path):
    by_hand.sweep(tmp_path / "one", {"allreduce": 1.0, "topk_0.1": 0.5})
    other = by_hand.config("allreduce", experiment="two", scale={"name": "laptop"})
    other |= {"network": {"_target_": "harness.virtual.network.Simulated"}}
    rows = [by_hand.step(n, rank) for n in range(10) for rank in range(2)]
    for place, ended in (("old", "2026-01-01T00:00:00"), ("new", "2026-01-02T00:00:00")):
        by_hand.run(tmp_path / "two" / place, other, rows, status={"ended": ended})
    failed = {"state": "failed", "error": "lost"}
    by_hand.run(tmp_path / "one" / "lost", by_hand.config("dgc"), rows, status=failed)
    found = metrics.table(load.runs(tmp_path))
    assert len(found) == 5 and set(found.method) == {"allreduce", "topk_0.1"}
    assert {*metrics.RunMetrics._fields, *metrics.MEANS} < set(found)
    counts = found.groupby(["experiment", "world", "scale"]).size()
    assert counts.to_dict() == {("by_hand", "packets", ""): 4, ("two", "virtual", "laptop"): 1}
    assert found[found.experiment == "two"].run_id.tolist() == ["new"]
    assert found.setting.nunique() == 2
    sparse = found[found.method == "topk_0.1"]
    assert sparse.speedup.tolist() == pytest.approx([2, 2])
    assert sparse.time_to_target_s.tolist() == [5, 5] and sparse.converged.all()


def test_a_table_of_no_runs_has_its_columns(tmp_path):
    by_hand.run(tmp_path / "lost", by_hand.config("dgc"), status={"state": "failed"})
    found = metrics.table(load.runs(tmp_path))
    assert found.empty and {"run_id", "throughput", "speedup", "world"} <= set(found)
