"""Training curves: what a run trained, so that equal runs on other networks only need new times.

If a controller does not react to the network, weights do not depend on it, bit for bit. So a run
writes what else its clock depended on, compression and collectives of every exchange, to
curve.jsonl. A run that differs only in its network finds it below the same results folder and
computes times anew.

The first line has the key of the training: a hash of the settings it depends on, of the code, and
of the machine. Each other line is one exchange, or the number of an earlier equal one, for every
step or, with local steps, for those that send a fragment. The reader does not trust the file.
"""

import csv
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from harness.config.run import Run
from harness.config.typed import class_paths
from harness.records import environment, manifest
from harness.records.run_directory import CURVE, Lines, read_json
from harness.virtual.exchange import Repeated
from harness.virtual.lanes import CollectiveCall, LaneOp, Work

CODE = ("compressors", "controllers", "harness/config", "harness/engine", "harness/virtual",
        "harness/workloads")  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
DEPTH = {"all_reduce": 0, "all_gather": 1, "all_to_all": 2}  # of the lists of sizes, by rank
MOST_BYTES = 1 << 62
WRONG = (OSError, ValueError, LookupError, TypeError, RecursionError, csv.Error)  # with a file


def is_apart(run: Run) -> bool:
    """Return True if training is independent of the network and a curve describes all of it."""
    plain = run.watch is None and run.resume_from is None
    is_virtual = run.network.in_process and run.emulation.compute == "paced"
    if not (is_virtual and plain and run.parallel.is_replayable):
        return False
    controller = run.controller()
    return not (controller.reacts_to_network or controller.chooses_horizon)


def key_of(run: Run) -> str:
    """Return the hash of all that the training of `run` depends on."""
    training = run.training()
    machine = environment.machine(), environment.versions()
    told = json.dumps(
        [training, _code(frozenset(class_paths(training))), machine], sort_keys=True, default=str
    )
    return hashlib.sha256(told.encode()).hexdigest()


@dataclass
class Trainings:
    """Record of which of many runs train, in the order in which they are asked for."""

    _known: set[tuple[str, str]] = field(default_factory=set, init=False)  # results and key

    def is_known(self, results: str, run: Run) -> bool:
        """Return True if an earlier run below `results` has recorded the training of this run."""
        if not (run.reuse_training and is_apart(run)):
            return False
        own = results, key_of(run)
        known = own in self._known
        self._known.add(own)
        return known


@cache
def _code(classes: frozenset[str]) -> str:
    """Return the hash of the code that trains, and of the modules of `classes`."""
    modules = (sys.modules.get(name.rpartition(".")[0]) for name in classes)
    files = {Path(file) for each in modules if (file := getattr(each, "__file__", None))}
    files |= {file for package in CODE for file in (ROOT / package).rglob("*.py")}
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


@dataclass
class Kept:
    """Writer of the curve of a run: a `harness.virtual.exchange.Keep`."""

    run_dir: Path
    key: str
    _known: dict[bytes, int] = field(default_factory=dict, init=False)  # exchanges, by their hash
    _done: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._lines = Lines(self.run_dir, CURVE)
        self._lines.add(json.dumps({"key": self.key}))

    def __call__(self, ready: list[float], works: Sequence[Work]) -> None:
        did = [(work.opening, work.buckets) for work in works]
        alike = all(each == did[0] for each in did)
        text = json.dumps({"ready": ready, "ranks": did[:1] if alike else did})
        digest = hashlib.sha256(text.encode()).digest()
        self._lines.add(str(self._known.get(digest, text)))
        self._known.setdefault(digest, self._done)
        self._done += 1


class CurveRow(NamedTuple):
    """Row of steps.csv without its times: fields of `Exchanged`, and then loss and controller."""

    sent_bytes: int
    received_bytes: int
    dense_bytes: int
    density: float
    achieved_density: float
    loss: float
    controller: str

    def exchanged(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields[:-2]}


@dataclass(frozen=True)
class CurveExchange:
    """Compression and collectives of one exchange."""

    ready: list[float]
    ranks: list[tuple[list[LaneOp], list[list[LaneOp]]]]  # one, where all ranks did the same


@dataclass(frozen=True)
class Curve:
    """Training of one run, by step and rank."""

    run: str  # folder and run id
    digest: str  # SHA-256 of its file
    steps: int
    exchanges: list[CurveExchange]  # in order
    rows: Mapping[tuple[int, int], CurveRow]  # by step and rank
    evaluations: Mapping[int, Mapping[str, float]]  # by steps done

    def told(self) -> dict[str, str]:
        """Return the entry for the record of a run that rests on this curve."""
        return {"run": self.run, "sha256": self.digest}

    def repeated(self, number: int, step: int, rank: int) -> Repeated:
        """Return exchange `number` of `rank` as recorded, with the record of `step`."""
        exchange, row = self.exchanges[number], self.rows[step, rank]
        opening, buckets = exchange.ranks[rank % len(exchange.ranks)]
        return Repeated(exchange.ready, opening, buckets, row.exchanged())


def find(run_dir: Path, key: str, run: Run) -> Curve | None:
    """Return the curve of `key` that another run recorded, or None.

    All succeeded runs below the results of `run_dir` are searched. A damaged curve is reported on
    stderr and skipped.
    """
    for file in sorted(run_dir.parents[1].glob(f"[!.]*/[!.]*/{CURVE}")):
        if file.parent == run_dir or not file.is_file() or not _has_key(file, key):
            continue
        told = read_json(file.parent / "status.json") or {}
        if told.get("state") != "succeeded":
            continue
        try:
            if damage := manifest.damage(file.parent, told):
                raise ValueError(damage)
            return _read(file.parent, told["files"][CURVE]["sha256"], run)
        except WRONG as error:
            why = str(error) or type(error).__name__
            print(f"{file.parent}: {why}: its training is not reused", file=sys.stderr)
    return None


def _has_key(file: Path, key: str) -> bool:
    expected = json.dumps({"key": key})
    try:
        with file.open() as lines:
            return lines.readline(len(expected) + 1).rstrip("\n") == expected
    except (OSError, ValueError):
        return False


def _read(run_dir: Path, digest: str, run: Run) -> Curve:
    """Read a curve. Raise ValueError, or another error that `find` expects, for damaged files."""
    workers, done = run.workers, list[CurveExchange]()
    with (run_dir / CURVE).open() as lines:
        next(lines)
        for line in lines:
            told = json.loads(line)
            done.append(done[_size(told)] if isinstance(told, int) else _exchange(told, workers))
    rows = dict(_rows(run_dir / "steps.csv"))
    steps = 1 + max((step for step, _ in rows), default=-1)
    whole = {(step, rank) for step in range(steps) for rank in range(workers)}
    if not rows or rows.keys() != whole or len(done) != run.parallel.exchanges(steps):
        raise ValueError(f"{CURVE} and steps.csv do not have the same steps and ranks")
    evaluations: dict[int, dict[str, float]] = {}
    with (run_dir / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            evaluations.setdefault(int(row["step"]), {})[row["metric"]] = float(row["value"])
    name = f"{run_dir.parent.name}/{run_dir.name}"
    return Curve(name, digest, steps, done, rows, evaluations)


def _rows(path: Path) -> Iterator[tuple[tuple[int, int], CurveRow]]:
    """Yield the rows of steps.csv at `path`, each with its (step, rank).

    Raise ValueError for values that are not of their column's type, or a controller's state that is
    no JSON object.
    """
    types = get_type_hints(CurveRow)
    with path.open() as file:
        for row in csv.DictReader(file):
            found = CurveRow(*(kind(row[name]) for name, kind in types.items()))
            state = sys.intern(found.controller)  # of thousands of rows most have the same
            if not isinstance(json.loads(state), dict):
                raise ValueError(f"steps.csv has {state!r} as a controller's state")
            yield (int(row["step"]), int(row["rank"])), found._replace(controller=state)


def _exchange(told: Any, workers: int) -> CurveExchange:
    def ops(told: Any) -> list[LaneOp]:
        return [
            LaneOp(_seconds(compress_s), tuple(_call(each, workers) for each in call))
            for compress_s, call in told
        ]

    ready = [_share(each) for each in told["ready"]]
    ranks = [(ops(opening), list(map(ops, buckets))) for opening, buckets in told["ranks"]]
    if len(ranks) not in (1, workers) or any(len(each) != len(ready) for _, each in ranks):
        raise ValueError(f"{CURVE} has an exchange of other ranks or buckets than its run")
    return CurveExchange(ready, ranks)


def _share(value: Any) -> float:
    if not (isinstance(value, float) and -1 < value < 2):  # sums of rounded shares
        raise ValueError(f"{CURVE} has {value!r} as a share of backward")
    return value


def _seconds(value: Any) -> float:
    if not (isinstance(value, float) and isfinite(value) and value >= 0):
        raise ValueError(f"{CURVE} has {value!r} as seconds of compression")
    return value


def _call(told: Any, workers: int) -> CollectiveCall:
    name, sizes, *more = told
    _check_sizes(sizes, DEPTH[name], workers)
    if more != ([workers] if name == "all_reduce" else []):
        raise ValueError(f"{CURVE} has {more!r} as the workers of a collective")
    return name, sizes, *more


def _check_sizes(sizes: Any, depth: int, workers: int) -> None:
    if not depth:
        _size(sizes)
    elif not isinstance(sizes, list) or len(sizes) != workers:
        raise ValueError(f"{CURVE} has a collective with no size for each of {workers} workers")
    else:
        for each in sizes:
            _check_sizes(each, depth - 1, workers)


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST_BYTES:
        raise ValueError(f"{CURVE} has {value!r} as a size")
    return value
