"""Runs and tables are read as written; what does not count is kept, with the reason."""

import numpy as np
import pytest

from harness import status
from harness.analysis import load
from harness.records import Evaluation, read_json, write_json
from tests import records_by_hand as by_hand


@pytest.fixture
def experiment(tmp_path):
    return by_hand.sweep(tmp_path / "results" / "by_hand", {"allreduce": 1.0, "topk_0.1": 0.5})


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


def test_conditions_deep_in_a_profile_or_network_tell_settings_apart(tmp_path):
    def contended(rate_mbit, nodes, sites):
        static = {"_target_": "profiles.static.Static", "rate_mbit": rate_mbit}
        straggler = {"_target_": "profiles.by_node.ByNode", "default": static, "nodes": nodes}
        return {
            "profile": {"_target_": "profiles.contended.Contended", "of": straggler},
            "network": {"sites": sites, "site_delays_ms": [[0, 1], [1, 0]]},
        }

    slow = {"_target_": "profiles.square.Square", "high_mbit": 5}
    changed = [
        (10, {0: slow}, [0, 1]),
        (10.0, {"0": slow | {"high_mbit": 5.0}}, [0, 1]),
        (11, {0: slow}, [0, 1]),
        (10, {0: slow, "1": slow}, [0, 1]),
        (10, {0: slow}, [1, 0]),
    ]
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
    assert load.steps(run).empty and "density" in load.steps(run)
    assert load.runs(run).left_out[0] == "steps.csv holds no step"


@pytest.mark.parametrize(
    "status, summary, left_out",
    [
        (
            {"state": "failed", "error": "rank 1 lost\ntrace"},
            {"valid": None},
            "failed: rank 1 lost",
        ),
        ({}, {"valid": False, "reasons": ["probe too slow"]}, "invalid: probe too slow"),
        ({"state": "invalid"}, {"valid": False, "reasons": ["a", "b"]}, "invalid: a; b"),
        ({}, {"valid": None}, "not judged, it has no summary"),
        ({"state": "interrupted"}, {}, "interrupted"),
    ],
)
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
