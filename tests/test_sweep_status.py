"""`report --status` counts every run of a sweep once, by its directory and its lock."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.locks import directory_to_ourselves
from harness.records import status
from harness.records.sweep_folder import AskedRun, JobEnding, SweepFolder
from tests.door import door

HOUR_S = 3600


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    """Of five runs, asked for an hour ago: one succeeded then, one failed long before."""
    names = [str(number) * 12 for number in range(5)]
    asked = [AskedRun(tmp_path / "name" / name, f"run {name[0]}", {}) for name in names]
    ended(asked[4].run_dir, "failed", "of an earlier command", at_s=-2 * HOUR_S)
    found = SweepFolder.of(tmp_path, asked)
    os.utime(found.path / "runs.json", times=(found.asked_at - HOUR_S,) * 2)
    ended(asked[0].run_dir, "succeeded", None)
    return found


def ended(run_dir: Path, state: str, error: str | None, at_s: float = 0) -> None:
    run_dir.mkdir(parents=True)
    status.begin(run_dir)
    status.end(run_dir, state, error)
    path = run_dir / "status.json"
    os.utime(path, times=(path.stat().st_mtime + at_s,) * 2)


def shown(sweep: SweepFolder, capsys: pytest.CaptureFixture[str], place: str = "name") -> list[str]:
    door("report", "--status", sweep.path.parents[1] / place)
    return capsys.readouterr().out.splitlines()


def test_counts_and_time_left(sweep: SweepFolder, capsys: pytest.CaptureFixture[str]) -> None:
    [line] = shown(sweep, capsys)  # one an hour
    assert line == "1 of 5 done, 0 running, 0 failed, 4 to do, about 240 min left"
    assert shown(sweep, capsys, "") == shown(sweep, capsys)  # of all results


def test_a_run_runs_while_its_lock_is_held_on_whichever_machine(sweep, capsys):
    with directory_to_ourselves(sweep.runs()[1].run_dir):
        first, running = shown(sweep, capsys)
    assert "1 of 5 done, 1 running, 0 failed, 3 to do" in first
    assert running.startswith(f"  name/{'1' * 12} run 1: running, process {os.getpid()} of user ")
    assert "1 of 5 done, 0 running, 0 failed, 4 to do" in shown(sweep, capsys)[0]


def test_what_failed_since_is_named_with_its_reason(sweep, capsys):
    ended(sweep.runs()[1].run_dir, "invalid", "a link\x1b[2J\nand more")
    ended(sweep.runs()[2].run_dir, "interrupted", "stopped by the user")  # to be done again
    sweep.end(3, JobEnding(str(sweep.runs()[3].run_dir), "failed", "no data", False, refused=True))
    first, *failed = shown(sweep, capsys)
    assert "1 of 5 done, 0 running, 2 failed, 2 to do" in first
    assert failed == [
        f"  name/{'1' * 12} run 1: failed, a link?[2J",
        f"  name/{'3' * 12} run 3: failed, no data",
    ]
    assert door("report", "--status", sweep.path.parents[1]) == 1


def test_the_same_runs_have_one_folder_and_another_command_another(sweep, capsys):
    results, asked = sweep.path.parents[1], sweep.runs()
    assert SweepFolder.of(results, asked) == sweep and sweep.runs() == asked
    later = SweepFolder.of(results, asked[:1])
    os.utime(later.path / "runs.json", times=(later.asked_at + 1,) * 2)
    assert shown(sweep, capsys) == ["1 of 1 done, 0 running, 0 failed, 0 to do"]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"runs": [1]}', '{"runs": [["a", "b"]]}', "{" * 9999]
)
def test_of_a_damaged_sweep_the_runs_that_are_there_are_shown(sweep, capsys, content):
    (sweep.path / "runs.json").write_text(content)
    assert shown(sweep, capsys) == [
        "1 of 2 done, 0 running, 1 failed, 0 to do, each asked for by a command of its own",
        f"  name/{'4' * 12} run: failed, of an earlier command",
    ]


def test_runs_that_no_sweep_asked_for_are_shown_by_method_and_seed(tmp_path, capsys):
    assert door("report", "--status", tmp_path / "name") == 1
    assert "there is no run in" in capsys.readouterr().err
    for name, state in (
        ("a", "succeeded"),
        ("b", "interrupted"),
        ("c", "failed"),
        (".d", "failed"),
    ):
        ended(tmp_path / "name" / name, state, "no data")
        (tmp_path / "name" / name / "config.yaml").write_text("method: {name: topk}\nseed: 3\n")
    for place in ("name", ""):
        assert door("report", "--status", tmp_path / place) == 1
        first, failed = capsys.readouterr().out.splitlines()
        assert first.startswith("1 of 3 done, 0 running, 1 failed, 1 to do")
        assert failed == "  name/c topk seed 3: failed, no data"


def test_the_command_starts_at_once_without_torch() -> None:
    code = "import sys, harness.cli.status; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
