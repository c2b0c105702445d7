"""status.json: whether a run runs, and how it ended."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.environment import boot_id
from harness.records import read_json, write_json

FINAL = ("succeeded", "failed", "interrupted", "invalid")


def begin(run_dir: Path) -> None:
    """This process now runs `run_dir`."""
    content = {"state": "running", "pid": os.getpid(), "boot_id": boot_id(), "started": _now()}
    write_json(run_dir / "status.json", content)


def end(run_dir: Path, state: str, error: str | None = None, **details: Any) -> None:
    """The run ended in `state`, one of FINAL; `error` says why in one line."""
    assert state in FINAL
    known = read_json(run_dir / "status.json") or {}
    details = {"state": state, "ended": _now(), "error": error, **details}
    write_json(run_dir / "status.json", known | details)


def state(run_dir: Path) -> str | None:
    """State of a run; a running one whose process is gone counts as interrupted. None: no run."""
    content = read_json(run_dir / "status.json")
    if content is None:
        return None
    if content["state"] == "running" and not _alive(content):
        return "interrupted"
    return content["state"]


def temporary(run_dir: Path) -> Path:
    """Where a run's processes keep temporary files, so that none stay behind elsewhere."""
    return run_dir / "tmp"


def _alive(content: dict[str, Any]) -> bool:
    if content["boot_id"] != boot_id():
        return False
    try:
        os.kill(content["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's: alive
        return True
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
