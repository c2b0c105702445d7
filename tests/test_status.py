"""Which runs go on, by what their directories say, damaged ones included."""

import os
import subprocess
from pathlib import Path

import pytest

from harness.records import run_directory, status
from harness.records.run_directory import TABLES, Events, Table, read_json, write_json


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Of a run that this process runs."""
    status.begin(tmp_path)
    return tmp_path


def change(run_dir: Path, **changes: object) -> None:
    path = run_dir / "status.json"
    write_json(path, (read_json(path) or {}) | changes)


def test_a_run_goes_on_while_its_process_lives(run_dir: Path) -> None:
    assert status.state(run_dir) == "running"
    status.end(run_dir, "failed", "a cause")
    assert status.state(run_dir) == "failed"
    assert status.state(run_dir / "nothing") is None


@pytest.mark.parametrize("other", [{"pid_since": 1}, {"boot_id": "another"}])
def test_a_process_id_of_another_process_or_boot_is_no_run(run_dir: Path, other: dict) -> None:
    change(run_dir, **other)
    assert status.state(run_dir) == "interrupted"


def test_a_process_that_has_ended_runs_nothing_also_before_it_is_waited_for(run_dir: Path) -> None:
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as ended:
        assert ended.stdout and ended.stdout.read() == b""
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        known = read_json(run_dir / "status.json") or {}
        write_json(run_dir / "status.json", {**known, "pid": ended.pid, "pid_since": None})
        assert status.state(run_dir) == "interrupted"


@pytest.mark.parametrize(
    "text",
    [b"", b"\0\0\0\0", b"{", b"[]", b"3", b"{}", b'{"state": 3}', b"\xff\xfe", b'{"state": "'],
)
def test_a_damaged_status_is_that_of_an_interrupted_run(text: bytes, run_dir: Path) -> None:
    (run_dir / "status.json").write_bytes(text)
    assert status.state(run_dir) == "interrupted"
    status.end(run_dir, "failed", "a cause")
    assert status.state(run_dir) == "failed"


def test_the_status_of_a_directory_that_was_removed_does_not_bring_it_back(run_dir: Path) -> None:
    (run_dir / "status.json").unlink()
    status.end(run_dir, "succeeded")
    assert os.listdir(run_dir) == []


def test_a_long_error_stays_within_the_block_that_a_full_disk_has_for_it(run_dir: Path) -> None:
    status.end(run_dir, "failed", "x" * 10_000)
    assert (run_dir / "status.json").stat().st_size < run_directory.BLOCK_BYTES


def test_torn_events_are_ignored_wherever_they_are(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.append("first")
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "torn", "ti{"event": 3\n\0\0\n7\n')
    events.append("second")
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "to')
    assert [event["event"] for event in run_directory.read_events(tmp_path)] == ["first", "second"]


def test_a_row_without_room_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    for name in TABLES:
        table = Table(tmp_path, name)
        os.dup2(full, table._file)
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/{name}'"):
            table.header()
    events = Events(tmp_path)
    os.dup2(full, events._file)
    with pytest.raises(OSError, match=r"No space left on device: .*/events\.jsonl"):
        events.append("event")


def test_rows_and_events_are_written_through_no_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("steps.csv", "events.jsonl", f".status.json.{os.getpid()}"):
        (tmp_path / name).symlink_to(mine)
    with pytest.raises(OSError):
        Table(tmp_path, "steps.csv")
    with pytest.raises(OSError):
        Events(tmp_path)
    with pytest.raises(OSError):
        run_directory.write_json(tmp_path / "status.json", {"state": "running"})
    assert mine.read_text() == "mine"


def test_a_folder_that_takes_nothing_says_why(tmp_path: Path) -> None:
    assert run_directory.refusal(tmp_path) == ""
    assert os.listdir(tmp_path) == []
    assert run_directory.refusal(tmp_path / "none") == f"No such file or directory: {tmp_path}/none"
    assert run_directory.refusal(Path("/proc/1")).endswith(": /proc/1")
