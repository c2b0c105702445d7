"""Interface of trackers, and their input: a finished run, read from its records."""

import csv
import json
from collections import defaultdict
from datetime import datetime
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import NamedTuple, Protocol

from harness.config import plain_yaml
from harness.config.typed import BadSetting, leaves
from harness.records import columns
from harness.records.run_directory import Step, read_json

NOT_A_VALUE = ("step", "rank", "controller")


class TrackedPoint(NamedTuple):
    """Values at a step: columns as means over ranks, and for an evaluation its metric."""

    step: int
    time_s: float  # on the training clock
    values: dict[str, float]  # finite, by `step/COLUMN` and `evaluation/METRIC`


class TrackedRun(NamedTuple):
    """A finished run, as its directory describes it."""

    run_id: str
    name: str
    experiment: str
    state: str
    started: datetime
    settings: dict[str, str]  # by dotted key
    points: list[TrackedPoint]  # by step


class Tracker(Protocol):
    """Writer of a finished run to a place beside its directory."""

    def check(self) -> None:
        """Raise BadSetting if a requirement is missing. Called before anything starts."""
        ...

    def write(self, run_dir: Path) -> None:
        """Write the run of `run_dir`, and replace an earlier one with its id."""
        ...


def require_package(package: str, extra: str) -> None:
    """Raise BadSetting, naming the `extra` to install, unless `package` can be imported."""
    if find_spec(package) is None:
        raise BadSetting(
            f"tracker={extra} needs the package {package}, which is not installed; "
            f"write pip install 'gradnet[{extra}]', or tracker=csv"
        )


def beside(run_dir: Path, name: str) -> Path:
    """Return a tracker's folder below the results folder of `run_dir`."""
    return run_dir.absolute().parent.parent / name


def read(run_dir: Path) -> TrackedRun:
    """Return the finished run of `run_dir`."""
    config = plain_yaml.from_file(run_dir / "config.yaml")
    status = read_json(run_dir / "status.json") or {}
    return TrackedRun(
        run_dir.name,
        f"{config['method']['name']} seed {config['seed']}",
        config["experiment"],
        status["state"],
        datetime.fromisoformat(status["started"]),
        {".".join(path): json.dumps(value) for path, value in leaves(config)},
        _points(run_dir),
    )


def _points(run_dir: Path) -> list[TrackedPoint]:
    found: dict[int, dict[str, float]] = defaultdict(dict)
    times_s: dict[int, float] = {}
    names = [name for name in columns.recorded(Step) if name not in NOT_A_VALUE]
    seen: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (run_dir / "steps.csv").open() as file:
        for row in csv.DictReader(file):
            for name in names:
                if isfinite(value := float(row[name])):
                    seen[int(row["step"])][name].append(value)
    for step, values in seen.items():
        means = {name: sum(each) / len(each) for name, each in values.items()}
        times_s[step] = means["time_s"]
        found[step] |= {f"step/{name}": mean for name, mean in means.items()}
    with (run_dir / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            if isfinite(value := float(row["value"])):
                times_s.setdefault(step := int(row["step"]), float(row["time_s"]))
                found[step][f"evaluation/{row['metric']}"] = value
    return [TrackedPoint(step, times_s[step], found[step]) for step in sorted(found)]
