"""NetSenseML's numbers beside measured ones."""

from math import isnan

import pandas as pd
import pytest

from harness.reporting.analysis import load, metrics
from harness.reporting.claims import published
from tests import records_by_hand as by_hand
from tests.claims.tables import table
from tests.papers.netsense.test_claims import as_published, of_table_1, on_4_workers


def sides(rows: list[dict]) -> pd.DataFrame:
    return published.side_by_side(table(*rows))


def test_throughputs_of_the_papers_tables_come_back_with_their_ratios():
    found = sides([each | {"scale": "paper"} for each in as_published()])
    speeds = found[found.metric == "training_throughput"]
    assert len(speeds) == 9 and speeds.measured.tolist() == pytest.approx(speeds.published)
    assert speeds.comparable.all() and (speeds.unit == "samples/s").all()
    ratios = found[found.metric == "throughput over AllReduce"]
    assert len(ratios) == 6 and ratios.measured.tolist() == pytest.approx(ratios.published)
    assert all(len(runs) == 2 for runs in ratios.runs)


def test_throughput_is_that_of_the_papers_workers_times_are_of_whoever_trains():
    found = sides(on_4_workers() + of_table_1())
    speeds = found[found.metric == "training_throughput"]
    assert len(speeds) == 9 and speeds.measured.tolist() == pytest.approx(speeds.published)
    assert not speeds.note.str.contains("4 workers").any()
    assert found[found.metric == "convergence_time"].note.str.contains("4 workers").all()


def test_a_time_that_was_never_reached_is_a_bound_beside_nothing():
    found = sides([each | {"converged": each["reached"]} for each in as_published()])
    times = found[found.metric == "convergence_time"]
    missing = times[times.published.isna()]
    assert len(missing) and set(missing.bound) == {"low"}


def test_absolute_numbers_of_a_stand_in_are_not_comparable_ratios_are():
    found = sides([each | {"workers": 4} for each in as_published()])
    kinds = found.groupby("metric").comparable.agg(set).to_dict()
    assert kinds["training_throughput"] == {False} and kinds["convergence_time"] == {False}
    assert kinds["throughput over AllReduce"] == {True}
    assert "4 workers, published with 8" in found.note.iloc[0]
    assert "absolute, of mlp_as_resnet18 on glyphs" in found.note.iloc[0]


def test_accuracies_are_those_when_netsenseml_had_its_best(tmp_path):
    steps = {"netsense": 1.0, "allreduce": 2.0, "topk_0.1_int64": 4.0}
    profile = {"_target_": "x", "of": {"_target_": "y", "rate_mbit": 200}}
    by_hand.sweep(tmp_path / "sweep", steps)
    for path in (tmp_path / "sweep").iterdir():
        config = load.config(path) | {"experiment": "netsense_resnet18_static", "profile": profile}
        by_hand.OmegaConf.save(by_hand.OmegaConf.create(config), path / "config.yaml")
        by_hand.seal(path)
    found = published.side_by_side(metrics.table(load.runs(tmp_path)))
    best = found[found.metric == "best_test_accuracy"].set_index("method").measured
    assert best["NetSenseML"] == pytest.approx(90.5) and best["AllReduce"] == pytest.approx(60.5)
    assert isnan(best["TopK-0.1"])
    assert found[found.method == "TopK-0.1"].note.str.contains("no evaluation before").any()
