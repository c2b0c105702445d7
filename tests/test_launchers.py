"""What Hydra's launchers do is told, shown and reported as what is done one after the other."""

import re
import sys
from pathlib import Path

import pytest

from harness.cli import launchers
from harness.config.scales import composed
from harness.config.settings import BadSetting
from harness.records.sweep_folder import JobEnding
from harness.runner import run
from tests.launching import completed, runs, state
from tests.virtual.runs import DETERMINED, SMALL

pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="gradnet[cluster]")
pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="gradnet[cluster]")
LAUNCHERS = {"joblib": ("report=false",), "submitit_local": ()}  # one report, for time
SWEEP = ("network=simulated", *SMALL[:2], "eval_every=3", "model.width=8", "workers=2", "steps=3")
SWEEP += (*DETERMINED, "optimizer.lr=1e-2,1e20")  # the second run fails
OF_LAUNCHERS = re.compile(r"\d+ jobs; .*\n|, about \d+ min left")


def sweep(launcher: str, results: Path, *more: str) -> tuple[int, str]:
    """Exit status, and what the command printed without what is of the launcher or the folder."""
    asked = ["-m", f"hydra/launcher={launcher}", *SWEEP, f"results={results}", *more]
    done = completed([sys.executable, "-m", "harness", *asked], timeout=240)
    return done.returncode, OF_LAUNCHERS.sub("", done.stdout.replace(str(results), "RESULTS"))


@pytest.mark.launch
@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_launcher_has_the_status_and_the_report_of_the_serial_one(tmp_path: Path) -> None:
    code, said = sweep("basic", tmp_path / "basic")
    assert code == 1 and said.count("succeeded: ") == 1 and "FloatingPointError" in said
    told, _, report = said.partition("No target is set")
    assert "\nRESULTS/adhoc/report/index.html" in report
    first = [path.name for path in runs(tmp_path / "basic")]
    for launcher, more in LAUNCHERS.items():
        results = tmp_path / launcher
        assert sweep(launcher, results, *more) == (code, told if more else said), launcher
        assert [path.name for path in runs(results)] == first
        assert sorted(map(state, runs(results))) == ["failed", "succeeded"]


@pytest.mark.launch
def test_runs_side_by_side_train_once(tmp_path: Path) -> None:
    """Two that begin together: one trains, the other waits for what it did."""
    more = ("optimizer.lr=0.01", "reuse_training=true", "checkpoint_every=null", "report=false")
    rates = ("profile.rate_mbit=10,20", "hydra.launcher.n_jobs=2")
    code, said = sweep("joblib", tmp_path, *more, *rates)
    assert code == 0 and said.count("succeeded: ") == 2
    assert said.count("timed by the training of ") == 1
    assert not list(tmp_path.glob(".*.lock"))


def test_runs_that_rest_on_the_training_of_another_come_last(tmp_path: Path) -> None:
    asked = [
        composed(["network=simulated", *SMALL[:2], f"results={tmp_path}", "network/device=v100",
                  "emulation.compute=paced", *each.split()])[0]
        for each in ("method=pace profile.rate_mbit=1", "seed=0 profile.rate_mbit=1",
                     "seed=0 profile.rate_mbit=2", "method=pace profile.rate_mbit=2",
                     "seed=1 profile.rate_mbit=2")
    ]  # fmt: skip
    assert launchers._in_order(asked, [0, 1, 2, 3, 4]) == [0, 1, 3, 4, 2]
    assert launchers._in_order(asked, [2, 3]) == [2, 3]


@pytest.mark.launch
def test_a_plan_is_the_same_by_any_launcher(tmp_path: Path) -> None:
    serial = sweep("basic", tmp_path, "plan=true")
    assert serial[0] == 0 and serial == sweep("joblib", tmp_path, "plan=true")
    assert not list(tmp_path.iterdir())


def small(results: Path, *more: str) -> launchers.SweepFolder:
    settings, _ = composed(["network=simulated", *SMALL, f"results={results}", *more])
    return launchers.asked([settings])


def job(sweep: launchers.SweepFolder, monkeypatch: pytest.MonkeyPatch, does: object) -> None:
    """Do what the job of the first run does, where a run does `does`."""

    def perform(settings: launchers.Settings) -> run.Outcome:
        if isinstance(does, BaseException):
            raise does
        assert isinstance(does, run.Outcome)
        return does

    monkeypatch.setattr(run, "perform", perform)
    monkeypatch.setattr(launchers.signals, "stop_in_order", lambda: None)
    monkeypatch.setattr(launchers.HydraConfig, "get", lambda: composed_job(0))
    launchers.LaunchedRun(sweep, [0])(launchers.DictConfig({}))


def composed_job(number: int) -> launchers.DictConfig:
    return launchers.DictConfig({"job": {"num": number}})


@pytest.mark.parametrize("error, state, refused", [
    (BadSetting("results: full"), "failed", True),
    (RuntimeError("lost"), "failed", False),
    (KeyboardInterrupt(), "interrupted", False),
    (SystemExit(-1), "interrupted", False),
])  # fmt: skip
def test_a_job_tells_how_it_ended_whatever_is_raised(tmp_path, monkeypatch, error, state, refused):
    folder = small(tmp_path)
    with pytest.raises(type(error)):
        job(folder, monkeypatch, error)
    ending = folder.ending(0)
    assert ending and (ending.state, ending.refused, ending.skipped) == (state, refused, False)


def test_a_job_that_is_queued_again_after_its_run_leaves_the_first_ending(tmp_path, monkeypatch):
    folder = small(tmp_path)
    done = run.Outcome(folder.runs()[0].run_dir, "succeeded", None, skipped=False)
    job(folder, monkeypatch, done)
    job(folder, monkeypatch, done._replace(skipped=True))
    assert folder.ending(0) == JobEnding(str(done.run_dir), "succeeded", None, False)


@pytest.mark.parametrize("raised", [None, RuntimeError("the queue is closed\nat all")])
def test_a_run_whose_job_never_ended_has_failed(tmp_path, monkeypatch, raised, caplog):
    def launch(*asked: object) -> None:
        if raised:
            raise raised

    monkeypatch.setattr(launchers, "_launch", launch)
    settings, config = composed(["network=simulated", *SMALL, f"results={tmp_path}"])
    outcomes: list[run.Outcome] = []

    def in_turn(runs: list[launchers.Settings], perform: object) -> int:
        outcomes.extend(perform(each) for each in runs)  # type: ignore[operator]
        return 1

    monkeypatch.setattr(launchers, "in_turn", in_turn)
    launchers.launched([settings], [[]], launchers.DictConfig({}))
    [outcome] = outcomes
    assert outcome.state == "failed" and not outcome.skipped
    assert ("RuntimeError: the queue is closed)" if raised else "nor has") in (outcome.error or "")


def test_one_command_has_one_launcher() -> None:
    launchers.check([["seed=0", "hydra/launcher=joblib"], ["seed=1", "hydra/launcher=joblib"]])
    with pytest.raises(BadSetting, match="hydra must be one for all runs, got hydra/launcher=a"):
        launchers.check([["hydra/launcher=a"], ["hydra/launcher=b"]])
