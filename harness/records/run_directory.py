"""The run directory: names, columns and writers of every file. Only this module writes results."""

import errno
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from controllers.base import Column, Observation
from harness.records import columns, printable


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Traffic across the cuts of a model in one step at one rank, both ways."""

    activation_bytes: Annotated[int, Column("of sent_bytes: what crossed cuts of the model")] = 0
    dense_activation_bytes: Annotated[int, Column("that it would be uncompressed")] = 0
    achieved_activation_density: Annotated[
        float, Column("share of the activations that were sent forward; nan where none are")
    ] = nan


@dataclass(frozen=True, kw_only=True)
class LocalRound(Activations):
    """Place of a step in its round of local steps; 0 without local steps."""

    round: Annotated[int, Column("of local steps, that the step is of")] = 0
    horizon: Annotated[int, Column("steps of that round; 0: gradients are exchanged")] = 0
    fragment: Annotated[
        int, Column("of the model, whose exchange ended in this step; -1: of none, or of all")
    ] = -1


@dataclass(frozen=True, kw_only=True)
class Step(LocalRound, Observation):
    """One row of steps.csv: one step at one rank; times are emulated seconds."""

    rank: Annotated[int, Column("", key=True)]
    loss: Annotated[float, Column("of this rank's batch; nan under replay")]
    samples: Annotated[int, Column("of this rank's batch")]
    compute_before_first_bucket_s: Annotated[
        float, Column("part of compute_s in which nothing could be sent yet", averaged=True)
    ]
    controller: Annotated[str, Column("its state, as JSON")]
    late_s: Annotated[float, Column("that computation took beyond its pace")] = 0.0
    waited_s: Annotated[
        float,
        Column("for a processor, sum over the rank's threads, without computation that was in "
               "time; nan: not counted"),
    ] = nan  # fmt: skip


class Evaluation(NamedTuple):
    """One row of evaluations.csv: a metric on the test set."""

    step: Annotated[int, Column("steps done")]
    time_s: Annotated[float, Column("training clock")]
    metric: Annotated[str, Column("accuracy, perplexity...")]
    value: float


class LinkSample(NamedTuple):
    """One row of links.csv; rates and times are emulated, bytes count from the link's start."""

    time_s: Annotated[float, Column("training clock")]
    link: Annotated[str, Column("up or down, and its node; or a trunk")]
    planned_mbit: Annotated[float, Column("rate that the profile asks for")]
    applied_mbit: Annotated[float, Column("rate that the kernel held then")]
    bytes: Annotated[int, Column("frames")]
    backlog_bytes: Annotated[int, Column("in the queue")]
    drops: Annotated[int, Column("packets")]


class Collective(NamedTuple):
    """One row of collectives.csv: a collective as one rank saw it; times are emulated."""

    start_s: Annotated[float, Column("training clock")]
    end_s: Annotated[float, Column("training clock")]
    rank: int
    sent_bytes: Annotated[int, Column("payload")]
    received_bytes: Annotated[int, Column("payload")]


class Span(NamedTuple):
    """One row of timeline.csv: what a worker did, and when, on the emulated clock."""

    step: int
    rank: int
    kind: Annotated[str, Column("forward, backward, compress or communicate")]
    bucket: Annotated[int, Column("that it was for, in the order of readiness; -1: none or all")]
    start_s: Annotated[float, Column("training clock")]
    end_s: Annotated[float, Column("training clock")]


class Pushed(NamedTuple):
    """One row of pushes.csv: a gradient that a parameter server has applied; times are emulated."""

    time_s: Annotated[float, Column("training clock")]
    rank: int
    thread: int
    step: int
    pulled_version: Annotated[int, Column("of the weights that it is of")]
    version: Annotated[int, Column("of the weights that it was applied to")]
    staleness: Annotated[int, Column("updates in between")]
    ahead: Annotated[int, Column("steps that its thread was ahead of the slowest")]
    entries: Annotated[int, Column("of the gradient, sent")]
    achieved_density: Annotated[float, Column("share of all entries sent")]
    residual_norm: Annotated[float, Column("of its worker's residual, when it was sent")]
    drains: Annotated[int, Column("layers whose residual was drained with it")]
    sent_bytes: Annotated[int, Column("by the worker, since its thread's last push")]
    received_bytes: Annotated[int, Column("likewise")]
    lock_wait_s: Annotated[float, Column("for others' updates")]


class Watched(NamedTuple):
    """One row of watched.csv: the magnitude that a share of a gradient or of each row reaches.

    A gradient is as it was compressed: with error feedback the residual is in it.
    """

    step: int
    rank: int
    of: Annotated[str, Column("name of a parameter, residual included, or cut and its number")]
    density: Annotated[float, Column("the share")]
    threshold: Annotated[float, Column("that it reaches; of activations the mean over rows")]
    laplace: Annotated[float, Column("likewise, by a Laplace fit of these entries")] = nan


class Bin(NamedTuple):
    """One row of histograms.csv: activations of a batch in [low, high), and their total."""

    step: int
    rank: int
    of: Annotated[str, Column("cut and its number")]
    low: float
    high: float
    entries: Annotated[int, Column("in the bin")]
    mean: Annotated[float, Column("of all entries")]
    deviation: Annotated[float, Column("of all entries")]


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
OVERWRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
BLOCK_BYTES = 4096  # that a file takes at least; what refusal() tries to write

TABLES: dict[str, type] = {
    "steps.csv": Step,
    "evaluations.csv": Evaluation,
    "links.csv": LinkSample,
}
PACKET_TABLES: dict[str, type] = {"collectives.csv": Collective}  # that data-parallel ranks leave
SIMULATED_TABLES: dict[str, type] = {"timeline.csv": Span}  # that only virtual time leaves
SERVER_TABLES: dict[str, type] = {"pushes.csv": Pushed}  # that only a parameter server leaves
WATCH_TABLES: dict[str, type] = {"watched.csv": Watched, "histograms.csv": Bin}  # that a watch does
OLD_NAMES = {  # of columns in tables that older versions wrote
    "occupancy": "achieved_density",
    "activation_occupancy": "achieved_activation_density",
    "before_s": "compute_before_first_bucket_s",
}
OLD_PLACES = {  # of classes in config.yaml that older versions wrote
    "harness.data.": "harness.workloads.data.",
    "harness.models.": "harness.workloads.models.",
    "harness.network.": "harness.emulation.",
    "harness.parameter_server.layout.": "harness.config.server.",
    "harness.pipeline.layout.": "harness.config.parallel.",
    "harness.simulate.": "harness.virtual.",
    "harness.training.": "harness.config.",
}
CURVE = "curve.jsonl"  # of a run in virtual time whose training does not depend on its network
ALL_TABLES = TABLES | PACKET_TABLES | SIMULATED_TABLES | SERVER_TABLES | WATCH_TABLES


def place_now(place: Any) -> Any:
    """Return the present class path for one of an older version, or else the argument."""
    for old, new in OLD_PLACES.items():
        if isinstance(place, str) and place.startswith(old):
            return new + place.removeprefix(old)
    return place


def _field(value: object) -> str:
    if isinstance(value, float):
        return repr(float(value))
    text = str(value)
    if any(mark in text for mark in ',"\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text


class Table:
    """Writer that appends rows to one csv. A row is one write, so processes may share the file."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self.columns = (*columns.recorded(ALL_TABLES[name]),)
        self._path = run_dir / name
        self._file = os.open(self._path, APPENDING, 0o644)

    def header(self) -> None:
        _write(self._file, ",".join(self.columns) + "\n", self._path)

    def append(self, *rows: Any) -> None:
        """Write `rows` at once. Readers see all of them or, after a crash, a torn last line."""
        text = "".join(",".join(self._fields(row)) + "\n" for row in rows)
        _write(self._file, text, self._path)

    def append_alike(self, row: Step, ranks: Sequence[int]) -> None:
        """Write `row`, whose second column is its rank, once for each of `ranks`."""
        first, _, *rest = self._fields(row)
        ending = ",".join(rest) + "\n"
        _write(self._file, "".join(f"{first},{rank},{ending}" for rank in ranks), self._path)

    def close(self) -> None:
        os.close(self._file)

    def _fields(self, row: Any) -> list[str]:
        return [_field(getattr(row, name)) for name in self.columns]


class Lines:
    """Writer that appends texts to a file, one per line."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._path = run_dir / name
        self._file = os.open(self._path, APPENDING, 0o644)

    def add(self, line: str) -> None:
        _write(self._file, line + "\n", self._path)

    def close(self) -> None:
        os.close(self._file)


class Events(Lines):
    """Writer of events.jsonl; `time_s` is on the emulated clock, None before step 0."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir, "events.jsonl")

    def append(self, event: str, time_s: float | None = None, **details: Any) -> None:
        self.add(json.dumps({"event": event, "time_s": time_s, **details}))


def _write(file: int, text: str, path: Path) -> None:
    """Write all of `text`. Raise OSError that names `path`, also after a partial write."""
    rest = text.encode()
    while rest:
        try:
            rest = rest[os.write(file, rest) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, content: dict) -> None:
    """Replace `path` by `content` atomically: readers see the old or the new file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(content, indent=2, default=str) + "\n"
    try:
        file = os.open(temporary, OVERWRITING, 0o644)
        try:
            _write(file, text, path)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def overwrite_json(path: Path, content: dict) -> None:
    """Overwrite `path` in place, for a full disk. A crash meanwhile may tear it."""
    text = json.dumps(content, indent=2, default=str) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        _write(file, text, path)
        os.ftruncate(file, len(text.encode()))
    finally:
        os.close(file)


def read_json(path: Path) -> dict | None:
    """Return the content of `path` without control characters in texts, or None."""
    try:
        content = json.loads(_content(path))
    except (FileNotFoundError, ValueError, RecursionError):  # not JSON, not UTF-8, or too deep
        return None
    return printable.values(content) if isinstance(content, dict) else None


def _content(path: Path) -> bytes:
    """Return all of a file. Raise ValueError for a pipe or a device, which may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is no file")
        return file.read()


def read_events(run_dir: Path) -> list[dict]:
    """Return all whole lines of events.jsonl. Torn lines, as a full disk leaves, are ignored."""
    path = run_dir / "events.jsonl"
    if not path.exists():
        return []
    events = []
    for line in _content(path).split(b"\n")[:-1]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(printable.values(event))
    return events


def refusal(folder: Path) -> str:
    """Return why `folder` takes no more data, or "", by writing a block to a temporary file."""
    path = folder / f".room.{os.getpid()}"
    try:
        file = os.open(path, OVERWRITING, 0o644)
        try:
            _write(file, "\0" * BLOCK_BYTES, path)
        finally:
            os.close(file)
            path.unlink(missing_ok=True)
    except OSError as error:
        return f"{error.strerror}: {folder}"
    return ""
