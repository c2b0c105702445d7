"""The run directory: names, columns and writers of every file in it; the only writer of results."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One row of steps.csv: one step at one rank; times are emulated seconds."""

    step: int
    rank: int
    time_s: float  # training clock at the end of the step, evaluation excluded
    loss: float  # of this rank's batch; nan under replay
    samples: int  # of this rank's batch
    compute_s: float
    compress_s: float
    comm_s: float
    exposed_s: float
    sent_bytes: int
    received_bytes: int
    dense_bytes: int
    density: float
    controller: str  # its state, as JSON


class Evaluation(NamedTuple):
    """One row of evaluations.csv."""

    step: int  # steps done
    time_s: float
    metric: str
    value: float


class LinkSample(NamedTuple):
    """One row of links.csv; rates and times are emulated, bytes count from the link's start."""

    time_s: float
    link: str  # up<node> or down<node>
    planned_mbit: float
    applied_mbit: float  # as read back from the kernel
    bytes: int
    backlog_bytes: int
    drops: int


TABLES: dict[str, type] = {
    "steps.csv": Step,
    "evaluations.csv": Evaluation,
    "links.csv": LinkSample,
}


def _field(value: object) -> str:
    text = repr(float(value)) if isinstance(value, float) else str(value)
    if any(mark in text for mark in ',"\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text


class Table:
    """Appends rows to one csv; a row is one write, so several processes may share the file."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self.columns: tuple[str, ...] = TABLES[name]._fields  # type: ignore[attr-defined]
        self._file = os.open(run_dir / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def header(self) -> None:
        os.write(self._file, (",".join(self.columns) + "\n").encode())

    def append(self, *rows: tuple) -> None:
        """Write `rows` at once; a reader sees all of them or, after a crash, a torn last line."""
        text = "".join(",".join(map(_field, row)) + "\n" for row in rows)
        os.write(self._file, text.encode())

    def close(self) -> None:
        os.close(self._file)


class Events:
    """Appends to events.jsonl what happened and when.

    `time_s` is on the emulated clock, None before step 0.
    """

    def __init__(self, run_dir: Path) -> None:
        self._file = os.open(
            run_dir / "events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )

    def append(self, event: str, time_s: float | None = None, **details: Any) -> None:
        line = json.dumps({"event": event, "time_s": time_s, **details}) + "\n"
        os.write(self._file, line.encode())


def write_json(path: Path, content: dict) -> None:
    """Replace `path` by `content` in one step: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=2, default=str) + "\n")
    os.replace(temporary, path)


def read_json(path: Path) -> dict | None:
    """Content of `path`, None when it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def read_events(run_dir: Path) -> list[dict]:
    """All complete lines of events.jsonl; a torn last line is ignored."""
    path = run_dir / "events.jsonl"
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1] if line]
