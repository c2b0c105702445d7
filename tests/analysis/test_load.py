"""Runs and tables are read as written; what does not count is kept, with the reason."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.records import run_directory, status
from harness.records.run_directory import Evaluation, read_json, write_json
from harness.reporting.analysis import comparison, load
from tests import records_by_hand as by_hand


@pytest.fixture
def experiment(tmp_path):
    return by_hand.sweep(tmp_path / "results" / "by_hand", {"allreduce": 1.0, "topk_0.1": 0.5})


def settings_of(folder, **runs):
    """What setting each of `runs` has, whose method and sections of a configuration are told."""
    for name, (method, sections) in runs.items():
        by_hand.run(folder / name, by_hand.config(method, **sections))
    return load.runs(folder).set_index("run_id").setting


def test_finds_runs_from_root_experiment_and_run_directory(experiment):
    assert len(load.runs(experiment.parent)) == 4
    assert len(load.runs(experiment)) == 4
    assert list(load.runs(experiment / "topk_0.1-1").run_id) == ["topk_0.1-1"]


def test_a_row_tells_what_was_run(experiment):
    row = load.runs(experiment / "topk_0.1-1").iloc[0]
    assert (row.experiment, row.method, row.seed, row.workers) == ("by_hand", "topk_0.1", 1, 2)
    assert (row.model, row.dataset, row.profile) == ("mlp", "digits", "constant")
    assert (row.metric, row.target, row.compute) == ("accuracy", 0.8, "measured")
    assert (row.state, row.valid, row.left_out) == ("succeeded", True, "")


def test_methods_and_seeds_share_a_setting_other_conditions_do_not(experiment):
    other = by_hand.config("topk_0.1", profile={"name": "square"})
    by_hand.run(experiment / "other", other, [by_hand.step(0)])
    settings = load.runs(experiment).set_index("run_id").setting
    assert settings.drop("other").nunique() == 1
    assert settings["other"] != settings["allreduce-0"]


def test_network_seeds_share_a_setting_and_a_seed_of_the_profile_s_own_does_not(tmp_path):
    """Runs older than the key have the network of their profile's seed."""

    def run(name, profile_seed, **seeds):
        profile = {"_target_": "profiles.scaled.Scaled", "of": {"seed": profile_seed}}
        by_hand.run(tmp_path / name, by_hand.config("topk", profile=profile, **seeds))

    run("old", 0, seed=1)
    run("one", 1, seed=1, network_seed=1)
    run("two", 2, seed=1, network_seed=2)
    run("own", 7, seed=1, network_seed=2)
    found = load.runs(tmp_path).set_index("run_id")
    assert found.network_seed.to_dict() == {"old": 0, "one": 1, "two": 2, "own": 2}
    assert found.setting[["old", "one", "two"]].nunique() == 1
    assert found.setting["own"] != found.setting["two"]


def test_generated_data_of_the_runs_seed_share_a_setting_and_of_another_do_not(tmp_path):
    def of(kind, seed, of_data):
        data = {"_target_": f"harness.workloads.data.{kind}", "seed": of_data}
        return "topk", {"dataset": data, "seed": seed}

    synthetic, glyphs = "synthetic.Synthetic", "glyphs.Glyphs"
    setting = settings_of(tmp_path, one=of(synthetic, 1, 1), two=of(synthetic, 2, 2),
                          own=of(synthetic, 2, 7), zero=of(glyphs, 0, 0),
                          three=of(glyphs, 3, 0))  # fmt: skip
    assert setting["one"] == setting["two"] != setting["own"]
    assert setting["zero"] == setting["three"]  # data with one seed for every run


def test_data_are_called_as_dataset_takes_them(tmp_path):
    data = "harness.workloads.data"
    for name, section in (
        ("pydoc", {"_target_": f"{data}.pydoc_text.PydocText", "window": 35, "vocabulary": 329}),
        ("cifar100", {"_target_": f"{data}.cifar.Cifar", "classes": 100}),
        ("cifar10", {"_target_": f"{data}.cifar.Cifar", "classes": 10}),
        ("mine", {"_target_": "my_package.Mine"}),
    ):
        by_hand.run(tmp_path / name, by_hand.config("topk", dataset=section))
    found = load.runs(tmp_path).set_index("run_id")
    assert found.dataset.to_dict() == {name: name for name in found.index}


def test_data_of_the_model_stood_in_for_has_no_seed_of_its_own_either(tmp_path):
    def of(seed, of_data):
        data = {"_target_": "harness.workloads.data.synthetic.Synthetic", "seed": of_data}
        return "topk", {"model": {"original": {"dataset": data}}, "seed": seed}

    setting = settings_of(tmp_path, one=of(1, 1), two=of(2, 2), own=of(2, 7))
    assert setting["one"] == setting["two"] != setting["own"]


def test_a_servers_drains_are_of_the_method_its_threads_of_the_setting(tmp_path):
    server = {"_target_": "harness.config.server.Server", "mode": "async", "threads": 2}
    drained = server | {"drain_period": 100.0}
    modes = {"dense": server | {"drain_period": None}, "drained": drained,
             "other": drained | {"threads": 3}}  # fmt: skip
    setting = settings_of(tmp_path, **{n: (n, {"parallel": mode}) for n, mode in modes.items()})
    assert setting["dense"] == setting["drained"] != setting["other"]


def test_a_momentum_is_one_condition_the_optimizers_or_the_compressors(tmp_path):
    dgc = {"_target_": "compressors.dgc.DGC", "momentum": 0.9}
    dense, sgd = {"_target_": "compressors.dense.Dense"}, {"lr": 0.1, "momentum": 0.0}
    setting = settings_of(
        tmp_path,
        dense=("dense", {"compressor": dense, "optimizer": sgd | {"momentum": 0.9}}),
        dgc=("dgc", {"compressor": dgc, "optimizer": sgd}),
        other=("other", {"compressor": dgc | {"momentum": 0.5}, "optimizer": sgd}),
    )
    assert setting["dense"] == setting["dgc"] != setting["other"]


def test_conditions_deep_in_a_profile_or_network_tell_settings_apart(tmp_path):
    def contended(rate_mbit, nodes, sites):
        static = {"_target_": "profiles.static.Static", "rate_mbit": rate_mbit}
        straggler = {"_target_": "profiles.by_node.ByNode", "default": static, "nodes": nodes}
        return {
            "profile": {"_target_": "profiles.contended.Contended", "of": straggler},
            "network": {"sites": sites, "site_delays_ms": [[0, 1], [1, 0]]},
        }

    slow = {"_target_": "profiles.square.Square", "high_mbit": 5}
    changed = [(10, {0: slow}, [0, 1]), (10.0, {"0": slow | {"high_mbit": 5.0}}, [0, 1]),
               (11, {0: slow}, [0, 1]), (10, {0: slow, "1": slow}, [0, 1]),
               (10, {0: slow}, [1, 0])]  # fmt: skip
    for number, parts in enumerate(changed):
        by_hand.run(tmp_path / str(number), by_hand.config("topk", **contended(*parts)))
    runs = load.runs(tmp_path)
    assert runs.setting[0] == runs.setting[1] and runs.setting.nunique() == 4
    assert runs.profile[3] == "contended(by_node(default static, nodes 0 square, nodes 1 square))"
    assert runs.conditions[0]["profile.of.nodes.0.high_mbit"] == 5


def test_what_differs_between_machines_of_a_run_is_no_condition(tmp_path):
    for machine, name in enumerate(("eth0", "eno1")):
        network = {"machine": machine, "interface": name, "update_s": 0.1}
        by_hand.run(tmp_path / name, by_hand.config("topk", network=network))
    assert load.runs(tmp_path).setting.nunique() == 1


def test_a_folder_without_runs_is_named(tmp_path):
    with pytest.raises(load.NoRuns, match=f"no runs in {tmp_path}"):
        load.runs(tmp_path)


def test_hydra_folders_and_reports_are_no_runs(experiment):
    (experiment / ".hydra").mkdir()
    (experiment / ".hydra" / "config.yaml").write_text("seed: 0\n")
    (experiment / "report").mkdir()
    assert len(load.runs(experiment)) == 4


def test_tables_have_the_rows_and_types_written(tmp_path):
    rows = [by_hand.step(0, loss=float("nan"), controller='{"a": [1, 2]}'), by_hand.step(1)]
    run = by_hand.run(
        tmp_path / "r", by_hand.config("topk"), rows, [Evaluation(2, 1.0, "accuracy", 0.5)]
    )
    steps = load.steps(run)
    assert list(steps.step) == [0, 1] and steps.sent_bytes.dtype == np.int64
    assert np.isnan(steps.loss[0]) and steps.controller[0] == '{"a": [1, 2]}'
    assert load.evaluations(run).value.tolist() == [0.5]
    assert load.links(run).empty and "planned_mbit" in load.links(run)


def test_a_torn_last_line_is_ignored(tmp_path):
    run = by_hand.run(tmp_path / "r", by_hand.config("topk"), [by_hand.step(0), by_hand.step(1)])
    by_hand.tear(run / "steps.csv")
    assert list(load.steps(run).step) == [0, 1]


@pytest.mark.parametrize("content", [None, "", "step,ra"])
def test_missing_empty_and_torn_header_give_an_empty_table(tmp_path, content):
    run = by_hand.run(tmp_path / "r", by_hand.config("topk"))
    (run / "steps.csv").unlink()
    if content is not None:
        (run / "steps.csv").write_text(content)
    by_hand.seal(run)
    assert load.steps(run).empty and "density" in load.steps(run)
    assert load.runs(run).left_out[0] == "steps.csv holds no step"


@pytest.mark.parametrize("status, summary, left_out", [
    ({"state": "failed", "error": "rank 1 lost\ntrace"}, {"valid": None}, "failed: rank 1 lost"),
    ({}, {"valid": False, "reasons": ["probe too slow"]}, "invalid: probe too slow"),
    ({"state": "invalid"}, {"valid": False, "reasons": ["a", "b"]}, "invalid: a; b"),
    ({}, {"valid": None}, "not judged, it has no summary"),
    ({"state": "interrupted"}, {}, "interrupted"),
])  # fmt: skip
def test_runs_that_do_not_count_are_kept_with_the_reason(tmp_path, status, summary, left_out):
    run = by_hand.run(
        tmp_path / "r", by_hand.config("topk"), [by_hand.step(0)], status=status, summary=summary
    )
    assert load.runs(run).left_out.tolist() == [left_out]


@pytest.mark.parametrize(
    "changed, state",
    [({}, "running"), ({"pid": 2**30}, "interrupted"), ({"boot_id": "x"}, "interrupted")],
)
def test_running_without_its_process_is_interrupted(tmp_path, changed, state):
    run = by_hand.run(tmp_path / "r", by_hand.config("topk"))
    status.begin(run)
    write_json(run / "status.json", read_json(run / "status.json") | changed)
    assert load.runs(run).state.tolist() == [state]


def test_a_run_is_called_as_its_settings_say_whatever_its_directory_does(tmp_path):
    """`compressor=topk controller.density=0.001` was once kept as `allreduce`, a newer one."""
    top_k = {"compressor": {"_target_": "compressors.topk.TopK"}, "error_feedback": False}
    top_k |= {"controller": {"_target_": "controllers.fixed.Fixed", "density": 0.001}}
    rows = [by_hand.step(n, time_s=0.1 * (n + 1)) for n in range(10)]
    slow = [by_hand.step(n, time_s=1.0 * (n + 1)) for n in range(10)]
    old, new = ({"ended": f"2026-01-0{day}T00:00:00"} for day in (1, 2))
    by_hand.run(tmp_path / "dense", by_hand.config("allreduce"), slow, status=old)
    by_hand.run(tmp_path / "sparse", by_hand.config("allreduce", **top_k), rows, status=new)
    found = load.runs(tmp_path).set_index("run_id")
    assert found.method.to_dict() == {"dense": "allreduce", "sparse": "topk_0.001_no_ef"}
    assert found.dense.to_dict() == {"dense": True, "sparse": False}
    assert found.density["sparse"] == 0.001 and found.compressor["sparse"] == "topk"
    compared = comparison.compare(comparison.newest(load.runs(tmp_path)))
    assert compared.baseline == "allreduce" and (compared.runs.left_out == "").all()
    table = compared.table.set_index("method")
    assert table.throughput["topk_0.001_no_ef"] == pytest.approx(10 * table.throughput.allreduce)
    assert table.normalised_throughput["topk_0.001_no_ef"] == pytest.approx(10)


def test_a_directory_without_the_parts_of_a_method_is_called_as_it_says(tmp_path):
    by_hand.run(tmp_path / "run", by_hand.config("of_elsewhere"), [by_hand.step(0)])
    [row] = load.runs(tmp_path).itertuples()
    assert row.method == "of_elsewhere" and not row.dense


def older(run: Path) -> str:
    """Rewrite steps.csv under the names that columns had before; the text as it was."""
    text = (run / "steps.csv").read_text()
    header, _, rows = text.partition("\n")
    names = {new: old for old, new in run_directory.OLD_NAMES.items()}
    told = [names.get(name, name) for name in header.split(",")]
    assert set(run_directory.OLD_NAMES) <= set(told)
    (run / "steps.csv").write_text(",".join(told) + "\n" + rows)
    by_hand.seal(run)
    return text


def test_older_names_of_columns_are_read_as_todays(tmp_path):
    rows = [by_hand.step(number, achieved_density=0.25) for number in range(3)]
    run = by_hand.run(tmp_path / "run", by_hand.config("topk"), rows)
    before = load.steps(run)
    older(run)
    pd.testing.assert_frame_equal(load.steps(run), before)
    assert load.runs(run).left_out.tolist() == [""]


def test_classes_of_older_runs_are_read_as_todays(tmp_path):
    sections = {
        "dataset": "harness.{data}digits.Digits",
        "network": "harness.{simulate}network.Simulated",
        "parallel": "harness.{pipeline}Pipeline",
    }
    older = {"data": "data.", "simulate": "simulate.", "pipeline": "pipeline.layout."}
    todays = {"data": "workloads.data.", "simulate": "virtual.", "pipeline": "config.parallel."}
    for name, places in (("older", older), ("todays", todays)):
        config = by_hand.config("topk")
        for section, target in sections.items():
            config[section] = config.get(section, {}) | {"_target_": target.format(**places)}
        by_hand.run(tmp_path / name, config, [by_hand.step(0)])
    one, other = load.runs(tmp_path).to_dict("records")
    assert one["setting"] == other["setting"] and one["conditions"] == other["conditions"]
    assert one["simulated"] and other["simulated"]


def test_a_column_under_both_of_its_names_is_refused(tmp_path):
    run = by_hand.run(tmp_path / "run", by_hand.config("topk"), [by_hand.step(0)])
    text = older(run).replace("comm_s", "before_s", 1)
    (run / "steps.csv").write_text(text)
    by_hand.seal(run)
    [said] = load.runs(run).left_out
    assert said.startswith("steps.csv is damaged: it has the column compute_before_first_bucket_s")
