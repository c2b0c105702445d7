"""The run directory: names, columns and writers of every file in it; the only writer of results."""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One row of steps.csv: one step at one rank; times are emulated seconds."""

    step: int
    rank: int
    time_s: float  # training clock at the end of the step, evaluation excluded
    loss: float  # of this rank's batch; nan under replay
    samples: int  # of this rank's batch
    before_s: float  # part of compute_s in which nothing could be sent yet
    compute_s: float
    compress_s: float
    comm_s: float
    exposed_s: float
    sent_bytes: int
    received_bytes: int
    dense_bytes: int
    density: float
    controller: str  # its state, as JSON
    occupancy: float = float("nan")  # share of entries sent, where density does not say
    activation_bytes: int = 0  # of sent_bytes: what crossed cuts of the model, both ways
    dense_activation_bytes: int = 0  # that it would be uncompressed
    activation_occupancy: float = float("nan")  # share of activations sent; nan where none are


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


class Span(NamedTuple):
    """One row of timeline.csv: what a worker did, and when, on the emulated clock."""

    step: int
    rank: int
    kind: str  # forward | backward | compress | communicate
    bucket: int  # that it was for, in the order of readiness; -1: none or all
    start_s: float
    end_s: float


class Pushed(NamedTuple):
    """One row of pushes.csv: a gradient that a parameter server has applied; times are emulated."""

    time_s: float
    rank: int
    thread: int
    step: int
    pulled_version: int  # of the weights that it is of
    version: int  # of the weights that it was applied to
    staleness: int  # updates in between
    ahead: int  # steps that its thread was ahead of the slowest
    entries: int
    occupancy: float  # of all entries
    residual_norm: float  # of its worker's residual, when it was sent
    drains: int  # layers whose residual was drained with it
    sent_bytes: int  # by the worker, since its thread's last push
    received_bytes: int
    lock_wait_s: float  # for others' updates


class Watched(NamedTuple):
    """One row of watched.csv: what a share of a gradient's or of each row's magnitudes reach."""

    step: int
    rank: int
    of: str  # name of a parameter, or cut<number>
    density: float
    threshold: float  # of activations the mean over rows
    laplace: float = float("nan")  # the one of all that a Laplace fit of these entries gives


class Bin(NamedTuple):
    """One row of histograms.csv: activations of a batch in [low, high), and of all of them."""

    step: int
    rank: int
    of: str  # cut<number>
    low: float
    high: float
    entries: int
    mean: float
    deviation: float


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
BLOCK_BYTES = 4096  # that a file takes at least; what refusal() tries to write

TABLES: dict[str, type] = {
    "steps.csv": Step,
    "evaluations.csv": Evaluation,
    "links.csv": LinkSample,
}
SIMULATED_TABLES: dict[str, type] = {"timeline.csv": Span}  # that only virtual time leaves
SERVER_TABLES: dict[str, type] = {"pushes.csv": Pushed}  # that only a parameter server leaves
WATCH_TABLES: dict[str, type] = {"watched.csv": Watched, "histograms.csv": Bin}  # that a watch does


def _field(value: object) -> str:
    text = repr(float(value)) if isinstance(value, float) else str(value)
    if any(mark in text for mark in ',"\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text


class Table:
    """Appends rows to one csv; a row is one write, so several processes may share the file."""

    def __init__(self, run_dir: Path, name: str) -> None:
        row: Any = (TABLES | SIMULATED_TABLES | SERVER_TABLES | WATCH_TABLES)[name]
        self.columns: tuple[str, ...] = row._fields
        self._path = run_dir / name
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def header(self) -> None:
        _write(self._file, ",".join(self.columns) + "\n", self._path)

    def append(self, *rows: tuple) -> None:
        """Write `rows` at once; a reader sees all of them or, after a crash, a torn last line."""
        text = "".join(",".join(map(_field, row)) + "\n" for row in rows)
        _write(self._file, text, self._path)

    def append_alike(self, row: tuple, ranks: Sequence[int]) -> None:
        """Write `row`, whose second column is a rank, once for each of `ranks`."""
        first, _, *rest = (_field(value) for value in row)
        ending = ",".join(rest) + "\n"
        _write(self._file, "".join(f"{first},{rank},{ending}" for rank in ranks), self._path)

    def close(self) -> None:
        os.close(self._file)


class Events:
    """Appends to events.jsonl what happened and when.

    `time_s` is on the emulated clock, None before step 0.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "events.jsonl"
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, event: str, time_s: float | None = None, **details: Any) -> None:
        line = json.dumps({"event": event, "time_s": time_s, **details}) + "\n"
        _write(self._file, line, self._path)


def _write(file: int, text: str, path: Path) -> None:
    """Write all of `text`; OSError that names `path`, also when only a part of it found room."""
    rest = text.encode()
    while rest:
        try:
            rest = rest[os.write(file, rest) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, content: dict) -> None:
    """Replace `path` by `content` in one step: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(content, indent=2, default=str) + "\n"
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write(file, text, path)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def overwrite_json(path: Path, content: dict) -> None:
    """Replace `path` in the room that it has, for a full disk; a crash meanwhile may tear it."""
    text = json.dumps(content, indent=2, default=str) + "\n"
    file = os.open(path, os.O_WRONLY)
    try:
        _write(file, text, path)
        os.ftruncate(file, len(text.encode()))
    finally:
        os.close(file)


def read_json(path: Path) -> dict | None:
    """Content of `path`; None when it does not exist or is damaged, so that it is no such file."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # neither JSON nor UTF-8
        return None
    return content if isinstance(content, dict) else None


def read_events(run_dir: Path) -> list[dict]:
    """All whole lines of events.jsonl; torn ones are ignored: a full disk leaves them anywhere."""
    path = run_dir / "events.jsonl"
    if not path.exists():
        return []
    events = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def refusal(folder: Path) -> str:
    """Why `folder` takes nothing more, found by writing a block; empty when it does."""
    path = folder / f".room.{os.getpid()}"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write(file, "\0" * BLOCK_BYTES, path)
        finally:
            os.close(file)
            path.unlink(missing_ok=True)
    except OSError as error:
        return f"{error.strerror}: {folder}"
    return ""
