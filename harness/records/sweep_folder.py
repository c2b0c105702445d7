"""results/.sweeps/<id>/: what a command asked for, and how jobs of a launcher ended.

runs.json has the folder, label and settings of every run, in order, and is written whenever the
command is given. <number>.json, of a run that a launcher's job did, says how that ended: so it
counts neither what a launcher hands back nor whether who asked still lives.
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
JOBS = ".jobs"  # below FOLDER: what a launcher keeps of its jobs
ID = re.compile(r"[0-9a-f]{12}")


class AskedRun(NamedTuple):
    """A run of a sweep: where it leaves its result, what it is called, its plain settings."""

    run_dir: Path
    label: str
    config: dict[str, Any]


class JobEnding(NamedTuple):
    """End of a run's job; `refused`: before the run began, for the reason in `error`."""

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
        """Write `runs` below `results`; the same runs have the same folder."""
        named = "\n".join(str(each.run_dir) for each in runs)
        found = cls(results / FOLDER / hashlib.sha256(named.encode()).hexdigest()[:12])
        found.path.mkdir(parents=True, exist_ok=True)
        rows = [[os.path.relpath(each.run_dir, results), each.label, each.config] for each in runs]
        write_json(found.path / RUNS, {"runs": rows})
        return found

    @property
    def asked_at(self) -> float:
        """When the command was last given, by the clock of the file system, in s since 1970."""
        return (self.path / RUNS).stat().st_mtime

    def runs(self) -> list[AskedRun]:
        """Return the runs that were asked for, in order; none where runs.json is damaged."""
        results = self.path.parents[1]
        try:
            rows = (read_json(self.path / RUNS) or {})["runs"]
            return [AskedRun(results / place, str(name), dict(told)) for place, name, told in rows]
        except (KeyError, TypeError, ValueError):
            return []

    def ending(self, number: int) -> JobEnding | None:
        """Return how the job of run `number` ended; None while it has not."""
        try:
            return JobEnding(**(read_json(self._file(number)) or {}))
        except TypeError:
            return None

    def end(self, number: int, ending: JobEnding) -> None:
        write_json(self._file(number), ending._asdict())

    def forget(self, number: int) -> None:
        """Its job is to begin."""
        self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.path / f"{number}.json"


def sweeps(results: Path) -> list[SweepFolder]:
    """All sweeps below `results`, the one that was asked for last first."""
    found = [
        SweepFolder(path.parent)
        for path in results.glob(f"{FOLDER}/*/{RUNS}")
        if ID.fullmatch(path.parent.name)
    ]
    return sorted(found, key=lambda each: each.asked_at, reverse=True)
