"""The commands of a page are those that the runs keep, and start these runs and no others."""

import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness.config import scales
from harness.config.settings import Settings
from harness.reporting.page import commands

EXPERIMENT = "+experiment=netsense_resnet18_static scale=laptop seed=2 method=netsense"
ASKED = {
    "an_experiment": f"{EXPERIMENT} profile.of.rate_mbit=500",
    "no_experiment": "profile=straggler model=mlp method=powersgd optimizer.lr=1e-3",
    "other_parts": "compressor=qsgd controller=warmup network=dumbbell steps=9",
    "words": "dataset=pydoc model=lstm_ptb target.metric=perplexity 'experiment=a b'",
}


def written(folder: Path, runs: list[Settings]) -> list[str]:
    """Write run directories of `runs`, as far as commands read them; return their paths."""
    paths = [folder / str(number) for number in range(len(runs))]
    for path, settings in zip(paths, runs, strict=True):
        path.mkdir(parents=True)
        OmegaConf.save(OmegaConf.create(settings.config), path / "config.yaml")
    return [str(path) for path in paths]


def composed(command: str) -> list[Settings]:
    """Return the runs that a command starts."""
    return scales.compose(shlex.split(command)[len(commands.PROGRAM) :])


@pytest.mark.parametrize("name", ASKED)
def test_a_command_starts_its_run_and_no_other(tmp_path, name):
    runs = scales.compose(shlex.split(ASKED[name]))
    [path] = written(tmp_path, runs)
    found = commands.of_runs([path])
    assert [run.identity() for run in composed(found.of_run[path])] == [runs[0].identity()]


@pytest.mark.parametrize("line", [
    "+experiment=quickstart",
    "-m +experiment=dc2_imagenet_static scale=laptop method=allreduce,dc2_da2 seed=0,1,2",
    "-m workers=2,4 network=simulated",
    "steps=3",
])  # fmt: skip
def test_one_command_starts_all_runs_of_a_command(tmp_path, line):
    runs = scales.compose(line.split())
    paths = written(tmp_path, runs)
    again = composed(commands.of_runs(paths).sweep)
    assert {run.run_id() for run in again} == {run.run_id() for run in runs}


def test_runs_that_no_command_makes_without_others_have_one_each(tmp_path):
    runs = scales.compose("-m method=allreduce,dc2_da2 seed=0,1,2".split())
    paths = written(tmp_path, runs)
    assert commands.of_runs(paths[1:]).sweep == ""
    assert list(commands.of_runs(paths[1:]).of_run) == paths[1:]
    some = [paths[0], paths[1], paths[3], paths[4]]
    assert commands.of_runs(some).sweep.endswith("method=allreduce,dc2_da2 seed=0,1")


@pytest.mark.parametrize("typed", [
    "rm -rf /",
    "python -m harness steps=3; rm x",
    "python -m harness $(rm x)\n",
    "python -m harness 'steps=3",
    "python -m harness model._target_=os.system",
    "python -m harness --config-dir=elsewhere",
    "python -m harness.around workers=2 -- rm x",
])  # fmt: skip
def test_what_a_file_says_does_nothing_in_a_shell(tmp_path, typed):
    [run] = scales.compose(["steps=3"])
    [path] = written(tmp_path, [Settings(run.config | {"typed": typed})])
    said = commands.of_runs([path]).of_run[path]
    words = shlex.split(said, comments=True)
    assert words == [] or words[:3] == commands.PROGRAM and shlex.join(words) == said
    assert "\n" not in said


def test_a_run_that_keeps_no_command_has_none(tmp_path):
    [run] = scales.compose(["steps=3"])
    [path] = written(tmp_path, [Settings({**run.config, "typed": None})])
    assert commands.of_runs([path])[:2] == ("", {})
