"""A result on disk is lost to a new one only, however its run is done again."""

from pathlib import Path

import pytest
import yaml

from compressors import kernels
from harness.config.scales import composed
from harness.records import environment, status
from harness.records.run_directory import write_json
from harness.runner import previous_result, run
from tests.records_by_hand import seal
from tests.test_settings import settings

ENDINGS = ("failed", "interrupted", "invalid")


def ended(run_dir: Path, state: str, told: str) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(run_dir / "status.json", {"state": state})
    (run_dir / "told").write_text(told)


def told(run_dir: Path) -> str:
    return (run_dir / "told").read_text()


@pytest.mark.parametrize("state", ENDINGS)
def test_a_run_that_does_not_succeed_gives_way_to_the_earlier_result(tmp_path, state):
    run_dir = tmp_path / "abc"
    for _ in range(2):  # also over what the last failure left
        ended(run_dir, "succeeded", "first")
        previous_result.set_aside(run_dir)
        ended(run_dir, state, "second")
        where = previous_result.put_back(run_dir)
        assert told(run_dir) == "first" and status.state(run_dir) == "succeeded"
        assert told(where) == "second" and where.name == ".abc.failed"


def test_a_new_result_replaces_the_earlier_one(tmp_path: Path) -> None:
    run_dir = tmp_path / "abc"
    ended(run_dir, "succeeded", "first")
    previous_result.set_aside(run_dir)
    ended(run_dir, "succeeded", "second")
    assert previous_result.put_back(run_dir) == run_dir and told(run_dir) == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["abc"]


@pytest.mark.parametrize("left", ["nothing", "running"])
def test_what_a_killed_process_set_aside_is_put_back(tmp_path: Path, left: str) -> None:
    run_dir = tmp_path / "abc"
    ended(run_dir, "succeeded", "first")
    previous_result.set_aside(run_dir)
    if left == "running":
        ended(run_dir, "running", "second")  # without its process: interrupted
    previous_result.put_back(run_dir)
    assert told(run_dir) == "first"


def test_done_again_and_failed_the_result_is_still_there(tmp_path, monkeypatch):
    """The whole of `perform`, with a run that breaks."""
    wanted = settings(f"results={tmp_path}", "rerun=true")
    run_dir = wanted.run_dir()
    ended(run_dir, "succeeded", "first")
    (run_dir / "config.yaml").write_text(yaml.safe_dump(wanted.config))
    seal(run_dir)

    def breaks(where: Path, *rest: object, **more: object) -> None:
        status.end(where, "failed", "it broke")

    monkeypatch.setattr(run, "supervised", breaks)
    outcome = run.perform(wanted)
    assert outcome.state == "failed" and outcome.error == "it broke"
    assert outcome.run_dir.name == f".{run_dir.name}.failed"
    assert str(outcome.run_dir / "logs") in run.failure_report(outcome)
    assert told(run_dir) == "first"
    again = run.perform(settings(f"results={tmp_path}"))
    assert again.skipped and again.run_dir == run_dir


@pytest.mark.parametrize("first", [True, False])
def test_a_first_compilation_is_told_before_the_run_that_waits_for_it(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "to_compile", lambda: first)
    asked, _ = composed(["network=simulated", f"results={tmp_path}"])
    said = []

    def do(run_dir: Path, lock: int | None) -> None:
        said.extend(capsys.readouterr().err.splitlines())
        status.end(run_dir, "failed", "not tried")

    assert run.done_once(asked, do, alone=False).state == "failed"
    assert said == [environment.COMPILES] * first
