"""What sparsity does, of tables by hand with known answers."""

import math

import pandas as pd
import pytest

from papers.dct import sparsity
from tests.analysis.t_interval import of_two


def told(
    density: float | None = None, lifespan: int | None = None, crossing: float | None = None,
    selection: str = "partition",
):  # fmt: skip
    found = {"controller": {"_target_": "controllers.fixed.Fixed", "density": density}}
    if lifespan:
        dct = {"_target_": "compressors.dct_dp.DCTDP", "refresh": "warmup", "selection": selection}
        return found | {"compressor": dct | {"lifespan": lifespan}, "error_feedback": True}
    found["compressor"] = {"_target_": "compressors.dense.Dense"}
    if crossing:
        dct = {"_target_": "compressors.activations.dct_mp.DCTMP", "density": crossing}
        found["activations"] = dct
    return found


@pytest.mark.parametrize(("method", "config", "family", "density", "lifespan"), [
    ("dct_dp_0.05", told(0.05, 1000), "dct_dp", 0.05, 1000),
    ("dct_dp_sort", told(0.05, 100, selection="sort"), "dct_dp_selection=sort", 0.05, 100),
    ("dct_mp_1", told(1.0, crossing=1), "dct_mp", 1, math.nan),
    ("dct_mp_0.25", told(1.0, crossing=0.25), "dct_mp", 0.25, math.nan),
    ("dc2_da2", {}, "dc2_da2", math.nan, math.nan),
])  # fmt: skip
def test_a_family_is_a_method_without_its_numbers(method, config, family, density, lifespan):
    found = sparsity.asked(method, config)
    assert (found.method, found.family) == (method, family)
    for value, wanted in ((found.density, density), (found.lifespan, lifespan)):
        assert value == wanted or (math.isnan(value) and math.isnan(wanted))


def test_a_sweep_has_several_values_within_one_family() -> None:
    names = {"allreduce": told(1.0), "x_0.1": told(0.1, 9), "x_0.2": told(0.2, 9)}
    names |= {"y_0.3": told(0.3, crossing=0.3)}
    table = pd.DataFrame([sparsity.asked(name, config) for name, config in names.items()])
    assert sparsity.vary(table, "density", 2) and not sparsity.vary(table, "density", 3)
    assert not sparsity.vary(table, "lifespan", 2)
    assert sparsity.baseline(table, "allreduce") == "allreduce"
    assert sparsity.baseline(table, "absent") == "allreduce"
    assert sparsity.baseline(table[table.density < 1], "absent") is None


def evaluations() -> pd.DataFrame:
    rows = [
        ("base", 0, 5, "loss", 9.0), ("base", 0, 10, "loss", 0.5), ("base", 1, 10, "loss", 1.0),
        ("x", 0, 10, "loss", 0.55), ("x", 1, 10, "loss", 1.3), ("x", 2, 10, "loss", 99.0),
        ("base", 0, 10, "accuracy", 0.8), ("x", 0, 10, "accuracy", 0.78),
        ("base", 0, 10, "bleu", 30.0), ("x", 0, 10, "bleu", 31.5),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["method", "seed", "step", "metric", "value"]).assign(
        network_seed=0
    )


def test_a_change_is_against_the_last_value_of_the_same_seed() -> None:
    found = sparsity.changes(evaluations(), "loss", "base").set_index("method")
    assert found.value.to_dict() == pytest.approx({"base": 0, "x": 20})
    assert (found.low["x"], found.high["x"]) == pytest.approx(of_two(10, 30))
    for metric, wanted in (("accuracy", -2), ("bleu", 1.5)):
        changed = sparsity.changes(evaluations(), metric, "base").set_index("method").value
        assert changed["x"] == pytest.approx(wanted)
    alone = sparsity.changes(evaluations(), "loss", None).set_index("method")
    assert alone.value["base"] == 0.75
    assert sparsity.unit("loss", None) == "loss"
    assert sparsity.unit("loss", "base").startswith("loss, %")
    assert sparsity.unit("test_accuracy", "base").startswith("test accuracy, points")


def test_a_step_is_compared_with_the_baseline_s_of_the_same_seed() -> None:
    parts = {"compute_s": 0.5, "compress_s": 0.1, "exposed_s": 0.2}
    rows = [("base", 0, 1.0), ("base", 1, 2.0), ("x", 0, 0.8), ("x", 1, 1.2)]
    measured = pd.DataFrame(
        [
            {"method": m, "seed": seed, "network_seed": 0, "iteration_s": s, **parts}
            for m, seed, s in rows
        ]
    )
    found = sparsity.times(measured, "base").set_index("method")
    assert found.change.to_dict() == pytest.approx({"base": 0, "x": -0.3})
    assert found.iteration_s["x"] == pytest.approx(1.0)
    ends = found.iteration_s_low["x"], found.iteration_s_high["x"]
    assert ends == pytest.approx(of_two(0.8, 1.2))
    assert found.compress_s["x"] == pytest.approx(0.1)
    assert sparsity.times(measured, None).change.isna().all()


def test_losses_are_means_of_stretches_paired_by_seed() -> None:
    steps = [(step, rank, 10.0 * (step + rank)) for step in range(7) for rank in (0, 2)]
    one = pd.DataFrame(steps, columns=["step", "rank", "loss"])
    found = sparsity.by_seed({(0, 0): one, (1, 1): one.assign(loss=2 * one.loss)}, "loss", most=3)
    assert found.index.tolist() == [2, 5, 6]  # the last of each stretch
    assert found[0, 0].tolist() == [20, 50, 70] and found[1, 1].tolist() == [40, 100, 140]
    line = sparsity.over_seeds(found)
    assert line.step.tolist() == [2, 5, 6] and line.value.tolist() == [30, 75, 105]
    assert (line.low[0], line.high[0]) == pytest.approx(of_two(20, 40))
    over = sparsity.percent_over(found * 1.1, found[[1]])
    assert over.columns.tolist() == [(1, 1)] and over[1, 1].tolist() == pytest.approx([10, 10, 10])


def test_what_no_run_knows_has_no_line() -> None:
    unknown = pd.DataFrame({"step": [0, 1], "rank": 0, "achieved_density": math.nan})
    assert sparsity.over_seeds(sparsity.by_seed({(0, 0): unknown}, "achieved_density", 10)).empty
