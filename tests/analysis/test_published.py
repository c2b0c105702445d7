"""Published numbers beside measured ones."""

from math import isnan

import pandas as pd
import pytest

from harness.analysis import load, metrics, published
from harness.claims import dc2
from tests import records_by_hand as by_hand
from tests.claims.tables import row, table
from tests.claims.test_dct import as_published as dct_as_published
from tests.claims.test_netsenseml import as_published, of_table_1, on_4_workers
from tests.claims.test_production import OF as production_steps
from tests.claims.test_production import runs as production_runs


def sides(rows: list[dict]) -> pd.DataFrame:
    return published.side_by_side(table(*rows))


def test_throughputs_of_the_papers_tables_come_back_with_their_ratios():
    found = sides([each | {"scale": "paper"} for each in as_published()])
    speeds = found[found.metric == "training_throughput"]
    assert len(speeds) == 9 and (speeds.published == speeds.measured).all()
    assert speeds.comparable.all() and (speeds.unit == "samples/s").all()
    ratios = found[found.metric == "throughput over AllReduce"]
    assert len(ratios) == 6 and ratios.measured.tolist() == pytest.approx(ratios.published)
    assert all(len(runs) == 2 for runs in ratios.runs)


def test_throughput_is_that_of_the_papers_workers_times_are_of_whoever_trains():
    found = sides(on_4_workers() + of_table_1())
    speeds = found[found.metric == "training_throughput"]
    assert len(speeds) == 9 and (speeds.published == speeds.measured).all()
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
    assert "absolute, of convnet on digits" in found.note.iloc[0]


def test_dc2_numbers_of_the_text():
    speeds = {"allreduce": 1.0, "topk_0.1": 2.0, "topk_0.001": 10.0, "randomk_0.001": 1.0}
    speeds |= {method: 4.0 for method in (*dc2.DC2, *dc2.RANDOM_DC2)} | {"dc2_da2": 5.0}
    finals = {"topk_0.001": 0.82, "allreduce": 0.9}
    rows = [
        row(dc2.VGG16, m, seed, time_s=100 / s, throughput=s, final=finals.get(m, 0.9))
        for m, s in speeds.items()
        for seed in (0, 1)
    ]
    rows += [row(dc2.LONG, "dc2_fed_da3", density=0.2)]
    found = sides(rows).set_index(["id", "method", "metric"])
    told = found.loc["dc2_fig4d", "DC2 vs uniform 0.1", "normalized_training_speedup_ratio_max"]
    assert (told.published, told.measured, told.low, told.high) == pytest.approx(
        (2.5, 2.5, 2.5, 2.5)
    )
    told = found.loc["dc2_fig4d", "Top-k-0.001", "accuracy_drop_vs_baseline"]
    assert (told.published, told.measured, told.comparable) == (14.8, pytest.approx(8), False)
    told = found.loc["dc2_fig4e", "ratio 0.001 vs DA2", "throughput_ratio_approx"]
    assert (told.published, told.measured) == (2, 2)
    told = found.loc["dc2_fig9cd", "DA3", "mean_compression_ratio"]
    assert (told.published, told.measured, told.comparable) == (0.145, 0.2, True)
    assert not any(name.startswith("dc2_fig5") for name in found.index.get_level_values(0))


def test_accuracies_are_those_when_netsenseml_had_its_best(tmp_path):
    steps = {"netsense": 1.0, "allreduce": 2.0, "topk_0.1_int64": 4.0}
    profile = {"_target_": "x", "of": {"_target_": "y", "rate_mbit": 200}}
    by_hand.sweep(tmp_path / "sweep", steps)
    for path in (tmp_path / "sweep").iterdir():
        config = load.config(path) | {"experiment": "netsense_resnet18_static", "profile": profile}
        by_hand.OmegaConf.save(by_hand.OmegaConf.create(config), path / "config.yaml")
    found = published.side_by_side(metrics.table(load.runs(tmp_path)))
    best = found[found.metric == "best_test_accuracy"].set_index("method").measured
    assert best["NetSenseML"] == pytest.approx(90.5) and best["AllReduce"] == pytest.approx(60.5)
    assert isnan(best["TopK-0.1"])
    assert found[found.method == "TopK-0.1"].note.str.contains("no evaluation before").any()


def test_without_runs_there_is_nothing_beside():
    nothing = table(row("adhoc", "allreduce")).iloc[:0]
    assert published.side_by_side(nothing).empty
    assert list(published.side_by_side(nothing)) == list(published.Side._fields)
    assert sides([row("adhoc", "allreduce")]).empty


def test_dct_qualities_come_back_by_workers_with_those_over_the_uncompressed_one():
    found = sides([each | {"scale": "paper"} for each in dct_as_published()])
    found = found[(found.paper == "dct") & found.id.str.startswith("dct_table")]
    assert found.measured.tolist() == pytest.approx(found.published, rel=1e-4)
    assert found.comparable.all() and {len(runs) for runs in found.runs} == {3, 6}
    told = found.set_index(["id", "method", "metric"]).published
    assert told["dct_table1", "DCT-MP sparsity=95%, 3 workers", "test_loss"] == 0.4546
    over = told["dct_table1", "DCT-MP sparsity=95%, 3 workers", "test_loss over uncompressed"]
    assert over == pytest.approx(1.0018, abs=1e-4)
    assert told["dct_table4", "DCT-MP sparsity=90%, 5 workers", "bleu"] == 35.20
    assert len(found[found.id == "dct_table6"]) == 9  # of which the baseline is table 1's


def test_dct_losses_of_a_stand_in_are_not_comparable_their_changes_are():
    found = sides(dct_as_published())
    found = found[found.id == "dct_table8"]
    kinds = found.groupby("metric").comparable.agg(set).to_dict()
    assert kinds == {"test_loss": {False}, "test_loss over uncompressed": {True}}
    assert found.note.str.contains("model of 3 stages, published with 2 workers").any()


def test_dct_percentages_of_time_and_loss():
    rows = [each for name in production_steps for each in production_runs(name)]
    rows += dct_as_published()
    found = sides(rows).set_index(["id", "method", "metric"]).measured
    by_l = found.loc["dct_fig8a"].droplevel("metric")
    assert by_l.tolist() == pytest.approx([11, 23, 0])
    gains = found.loc["dct_table5"].xs("time_gain", level="metric")
    assert gains.tolist() == pytest.approx([7, 13.95, 14.43])
    assert found["dct_abstract", "DCT", "training_time_reduction_max"] == pytest.approx(37.1)
    assert found["dct_abstract", "DCT", "communication_reduction_max"] == pytest.approx(1 / 0.066)
    increases = found.xs("test_loss_increase", level="metric")
    assert increases.tolist() == pytest.approx([0.18, 0.20, 0.22], abs=0.01)
