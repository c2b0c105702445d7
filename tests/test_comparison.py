"""An experiment is its whole comparison, at a scale that fits the machine; words narrow it."""

import sys
from pathlib import Path

import pytest

from harness.config import scales, sweep
from harness.config.scales import compose, describe
from harness.config.settings import Settings
from tests.launching import completed

NAME = "+experiment=dc2_imagenet_dynamic"
METHODS = ["allreduce", "sampled_topk_0.1", "sampled_topk_0.001", "oracle_sampled_topk"]
METHODS += ["dc2_da2", "dc2_da3", "dc2_da4", "dc2_da5"]
METHODS += ["randomk_0.1_no_shared", "randomk_0.001_no_shared"]
METHODS += [f"dc2_da{n}_randomk_no_shared" for n in (2, 3, 4, 5)]


def asked(runs: list[Settings]) -> list[tuple[str, int]]:
    return [(settings["method.name"], settings["seed"]) for settings in runs]


def test_an_experiment_is_all_lines_of_its_comparison_times_its_seeds() -> None:
    found = compose([NAME, "scale=laptop"])
    assert sorted(asked(found)) == sorted((m, seed) for m in METHODS for seed in range(6))
    assert asked(compose(["-m", NAME, "scale=laptop"])) == asked(found)


def test_words_of_the_command_line_take_the_place_of_the_lines() -> None:
    few = compose([NAME, "scale=laptop", "method=topk,dc2_da2", "seed=7"])
    assert asked(few) == [("topk_0.01", 7), ("dc2_da2", 7)]
    rates = compose([NAME, "scale=laptop", "method=pace", "seed=0", "optimizer.lr=0.1,0.2"])
    assert [settings["optimizer.lr"] for settings in rates] == [0.1, 0.2]


def test_without_an_experiment_there_is_one_run() -> None:
    assert asked(compose(["method=topk"])) == [("topk_0.01", 0)]


def test_a_line_may_change_any_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the command line says of a method replaces what a line says of its parts."""
    lines = [["method=allreduce"], ["method=topk", "controller.density=0.2,0.4"]]
    monkeypatch.setattr(sweep, "comparison", lambda overrides: lines)
    found = compose(["scale=laptop"])
    assert [s["controller.density"] for s in found] == [1.0, 0.2, 0.4]
    assert asked(compose(["scale=laptop", "method=pace"])) == [("pace", 0)]


def test_the_folder_and_the_experiment_are_both_given() -> None:
    [run] = compose(["+experiment=quickstart", "experiment=mine", "method=allreduce"])
    assert run["experiment"] == "mine" and "folder" not in run.config
    [own] = compose(["+experiment=quickstart", "method=allreduce"])
    assert own["experiment"] == "quickstart"
    [plain] = compose(["experiment=mine"])
    assert plain["experiment"] == "mine"


def test_the_laptop_s_scale_is_taken_where_data_lacks(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    for words in ([NAME], [NAME, "scale=auto"]):
        runs, said, *_ = describe([[*words, "method=allreduce", "seed=0"]])
        assert [settings["scale.name"] for settings in runs] == ["laptop"]
        assert said.startswith("scale=laptop: imagenet not found in ") and "\n" not in said


def test_the_paper_s_scale_is_taken_where_nothing_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scales, "lacks", lambda settings: "")
    runs, said, *_ = describe([[NAME, "method=allreduce", "seed=0"]])
    assert [settings["scale.name"] for settings in runs] == ["paper"]
    assert said.startswith("scale=paper: ")


def test_several_commands_are_at_one_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lacks its data: a folder never holds results of two scales."""
    lacking = "netsense_table1"
    monkeypatch.setattr(scales, "lacks", lambda s: "no data" if s["experiment"] == lacking else "")
    commands = [[NAME, "seed=0"], [f"+experiment={lacking}", "seed=0"]]
    found = describe(commands)
    assert {settings["scale.name"] for settings in found.runs} == {"laptop"}
    assert found.scale.startswith("scale=laptop: no data")


def test_the_command_says_what_it_will_do_before_it_does_it(tmp_path: Path) -> None:
    words = [NAME, "method=allreduce,topk", "seed=0", "network=simulated", "steps=2"]
    words += ["eval_every=2", "report=false", f"results={tmp_path}"]
    command = [sys.executable, "-m", "harness", *words]
    scale, announced, *ended = completed(command, 240).stdout.splitlines()
    assert scale.startswith("scale=laptop: ") and announced.startswith("2 runs, about ")
    assert announced.endswith("fewer: method=allreduce")
    assert [line.split(":")[0] for line in ended] == ["succeeded", "succeeded"]
    assert [line.split("; ")[1].split(", about")[0] for line in ended] == ["1 of 2", "2 of 2"]
    assert ended[0].endswith(" min left")
    again = completed(command, 240)
    assert "2 runs, 2 of them done before" in again.stdout, again.stdout + again.stderr
