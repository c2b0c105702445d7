"""`doctor --clean` takes what dead runs left in their folders, and nothing of live ones.

What is left on real interfaces: tests/emulation/test_ledger.py.
"""

import subprocess
import sys
from pathlib import Path

from harness.records import status
from harness.records.run_directory import read_json, write_json
from tests.door import door

ROOT = Path(__file__).resolve().parents[1]


def run_dir(results: Path, name: str, **changes: object) -> Path:
    """A run that this process runs, with temporary files; `changes` to its status."""
    folder = results / "experiment" / name
    (folder / "tmp" / "inner").mkdir(parents=True)
    (folder / "steps.csv").write_text("step\n")
    status.begin(folder)
    write_json(folder / "status.json", (read_json(folder / "status.json") or {}) | changes)
    return folder


def run_clean(tmp_path: Path, *options: str) -> int:
    return door("doctor", "--clean", "--results", tmp_path, "--ledger", tmp_path / "none", *options)


def ended_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_temporary_files_of_dead_runs_go_and_those_of_live_runs_stay(tmp_path, capsys):
    live = run_dir(tmp_path, "live")
    dead = run_dir(tmp_path, "dead", pid=ended_pid())
    earlier = run_dir(tmp_path, "earlier", boot_id="another")
    failed = run_dir(tmp_path, "failed", state="failed")
    assert run_clean(tmp_path, "--dry-run") == 0
    told = capsys.readouterr().out
    assert told.count("would remove") == 3 and "live" not in told, told
    assert all((run / "tmp").is_dir() for run in (live, dead, earlier, failed))
    assert run_clean(tmp_path) == 0
    told = capsys.readouterr().out
    assert f"removed {dead / 'tmp'}: its run is interrupted" in told, told
    assert (live / "tmp").is_dir() and (dead / "steps.csv").exists()
    assert not any((run / "tmp").exists() for run in (dead, earlier, failed))
    assert run_clean(tmp_path) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_the_command_starts_at_once_without_torch(tmp_path: Path) -> None:
    code = "import sys, harness.cli.clean; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
