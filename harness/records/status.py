"""status.json: whether a run is active, and how it ended."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.records import manifest
from harness.records.run_directory import NO_SPACE, overwrite_json, read_json, write_json

FINAL = ("succeeded", "failed", "interrupted", "invalid")
JUDGED = ("succeeded", "invalid")
PROC = Path("/proc")  # of Linux
BOOT_ID = PROC / "sys" / "kernel" / "random" / "boot_id"
MACOS_BOOT_ID = ["sysctl", "-n", "kern.bootsessionuuid"]
MOST_TOLD = 2000  # characters of an error, so that status.json stays within one block


def begin(run_dir: Path) -> None:
    """Write status.json in `run_dir`: state "running", and this process as the owner."""
    owner = {"pid": os.getpid(), "pid_since": _since(os.getpid()), "boot_id": boot_id()}
    write_json(run_dir / "status.json", {"state": "running", **owner, "started": _now()})


def end(run_dir: Path, state: str, error: str | None = None, **details: Any) -> None:
    """Record that the run ended in `state`, one of FINAL, with `error` as reason in one line.

    A run with a verdict gets a manifest of its files, so write nothing after it. This also works on
    a full disk, which has no room for a second file. A removed directory is ignored.
    """
    assert state in FINAL
    path = run_dir / "status.json"
    if not path.exists():
        return
    error = error and error[:MOST_TOLD]
    if state in JUDGED:
        details["files"] = manifest.of(run_dir)
    content = (read_json(path) or {}) | {"state": state, "ended": _now(), "error": error, **details}
    try:
        write_json(path, content)
    except OSError as refused:
        if refused.errno not in NO_SPACE:
            raise
        overwrite_json(path, content)


def end_if_running(run_dir: Path, final: str, error: str) -> None:
    """End the run in the state `final`, with `error`, unless it has recorded its own end."""
    if state(run_dir) == "running":
        end(run_dir, final, error)


def state(run_dir: Path) -> str | None:
    """Return a run's state, or None; interrupted if its process is gone or the file damaged."""
    path = run_dir / "status.json"
    if not path.exists():
        return None
    content = read_json(path) or {}
    told = content.get("state")
    if told == "running" and _alive(content):
        return "running"
    return told if told in FINAL else "interrupted"


def temporary(run_dir: Path) -> Path:
    """Return the directory for temporary files of a run's processes."""
    return run_dir / "tmp"


def boot_id() -> str:
    """Return an id of this boot, to distinguish process ids of earlier boots."""
    if BOOT_ID.exists():
        return BOOT_ID.read_text().strip()
    return subprocess.run(MACOS_BOOT_ID, capture_output=True, text=True, check=True).stdout.strip()


def _alive(content: dict[str, Any]) -> bool:
    """Return True if the process that began the run lives, even if ids were reused."""
    pid = content.get("pid")
    if content.get("boot_id") != boot_id() or not isinstance(pid, int):
        return False
    since = _since(pid)
    return since is not None and content.get("pid_since", since) == since


def _since(pid: int) -> int | str | None:
    """Return the start of process `pid`, in ticks since boot or as ps says, or None."""
    if not PROC.is_dir():
        ps = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, text=True).stdout.strip() or None
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, began = fields[0], fields[19]  # the 3rd and 22nd of proc(5)
    return None if state in "ZX" else int(began)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
