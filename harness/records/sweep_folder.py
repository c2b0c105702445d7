"""results/.sweeps/<id>/: the runs of a command, and how a launcher's jobs ended.

runs.json has folder, label and settings of every run, in order, and is written whenever the command
is given. <number>.json says how a launcher's job of that run ended. So neither the launcher's
return values nor a living caller are needed.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.records.run_directory import read_json, write_json

FOLDER, RUNS = ".sweeps", "runs.json"
JOBS = ".jobs"  # below FOLDER: the launcher's own files
ID = re.compile(r"[0-9a-f]{12}")


class AskedRun(NamedTuple):
    """A run of a sweep: result folder, label, and plain settings."""

    run_dir: Path
    label: str
    config: dict[str, Any]


class JobEnding(NamedTuple):
    """End of a run's job. `refused` means before the run began, with the reason in `error`."""

    run_dir: str
    state: str
    error: str | None
    skipped: bool
    refused: bool = False


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one sweep."""

    path: Path

    @classmethod
    def of(cls, results: Path, runs: Sequence[AskedRun]) -> "SweepFolder":
        """Write `runs` below `results`. The same runs have the same folder."""
        named = "\n".join(str(each.run_dir) for each in runs)
        found = cls(results / FOLDER / hashlib.sha256(named.encode()).hexdigest()[:12])
        found.path.mkdir(parents=True, exist_ok=True)
        rows = [[os.path.relpath(each.run_dir, results), each.label, each.config] for each in runs]
        write_json(found.path / RUNS, {"runs": rows})
        return found

    @property
    def asked_at(self) -> float:
        """Time of the last command, by the file system's clock, in seconds since 1970."""
        return (self.path / RUNS).stat().st_mtime

    def runs(self) -> list[AskedRun]:
        """Return the runs of the sweep in order, or none if runs.json is damaged."""
        results = self.path.parents[1]
        try:
            rows = (read_json(self.path / RUNS) or {})["runs"]
            return [AskedRun(results / place, str(name), dict(told)) for place, name, told in rows]
        except (KeyError, TypeError, ValueError):
            return []

    def ending(self, number: int) -> JobEnding | None:
        """Return how the job of run `number` ended, or None if it has not."""
        try:
            return JobEnding(**(read_json(self._file(number)) or {}))
        except TypeError:
            return None

    def end(self, number: int, ending: JobEnding) -> None:
        write_json(self._file(number), ending._asdict())

    def forget(self, number: int) -> None:
        """Remove the ending of run `number`, whose job is about to begin."""
        self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.path / f"{number}.json"


def sweeps(results: Path) -> list[SweepFolder]:
    """Return all sweeps below `results`, the latest first."""
    found = [
        SweepFolder(path.parent)
        for path in results.glob(f"{FOLDER}/*/{RUNS}")
        if ID.fullmatch(path.parent.name)
    ]
    return sorted(found, key=lambda each: each.asked_at, reverse=True)
