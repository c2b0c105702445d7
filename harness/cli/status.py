"""How far a sweep is: `report --status results/NAME`, from what its runs have written.

Of the command that asked for runs of this folder last: done, running, failed, to do, and about how
long; who runs what, and why what failed did. In a terminal it goes on until the sweep has ended.
Without such a command it shows the runs that are there, which were asked for one by one.
It reads directories and locks alone, so it may be called on any machine that sees them.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from yaml import YAMLError

from harness import locks
from harness.clock import minutes_of
from harness.config import plain_yaml
from harness.records import printable, status
from harness.records.run_directory import read_json
from harness.records.sweep_folder import AskedRun, JobEnding, SweepFolder, sweeps

LOOK_S = 2.0
MOST_NAMED = 8  # runs of a kind, a line each
DONE, RUNNING, FAILED, TO_DO = "done", "running", "failed", "to do"


class SeenRun(NamedTuple):
    """A run of a sweep as it is now; `said` is who runs it, or why it failed."""

    run: AskedRun
    state: str  # DONE, RUNNING, FAILED or TO_DO
    said: str
    is_new: bool  # it ended since the sweep was asked for


def show(folder: Path, once: bool) -> int:
    """Print the state of the sweep in `folder`; in a terminal until it has ended, unless `once`.

    Return 1 if a run failed, or if there is no run.
    """
    found = _sweep(folder.absolute())
    if found is None:
        return _show_single_runs(folder)
    if sys.stdout.isatty() and not once:
        seen = _followed(found)
    else:
        seen = look(found)
        with suppress(BrokenPipeError):  # the reader has read enough
            print("\n".join(lines(seen, _left(found, seen))), flush=True)
    return 1 if any(run.state == FAILED for run in seen) else 0


def _sweep(folder: Path) -> SweepFolder | None:
    """The last sweep with a run in `folder`, or below it."""
    for results in (folder, folder.parent):
        for sweep in sweeps(results):
            if any(folder in each.run_dir.parents for each in sweep.runs()):
                return sweep
    return None


def _show_single_runs(folder: Path) -> int:
    """Show the runs below a folder of which no sweep asked; 1 where there are none, or one failed.

    A command that asks for one run alone writes no sweep.
    """
    asked = []
    for path in sorted(folder.rglob("status.json")):
        run_dir = path.parent.absolute()
        if not any(name.startswith(".") for name in path.relative_to(folder).parts):
            asked.append(AskedRun(run_dir, _label(run_dir), {}))
    if not asked:
        print(f"harness report: there is no run in {folder}", file=sys.stderr)
        return 1
    seen = [_seen(run, since=0.0) for run in asked]
    with suppress(BrokenPipeError):  # who reads has read enough
        print("\n".join(lines(seen, ", each asked for by a command of its own")), flush=True)
    return 1 if any(each.state == FAILED for each in seen) else 0


def _label(run_dir: Path) -> str:
    """Name a run by its method and seed; "run" where its config.yaml is damaged."""
    try:
        config = plain_yaml.read((run_dir / "config.yaml").read_text())
        return f"{config['method']['name']} seed {config['seed']}"
    except (OSError, ValueError, KeyError, TypeError, YAMLError):
        return "run"


def look(sweep: SweepFolder) -> list[SeenRun]:
    """Every run of `sweep`, in order."""
    since = sweep.asked_at
    return [_seen(each, since, sweep.ending(n)) for n, each in enumerate(sweep.runs())]


def _seen(run: AskedRun, since: float, ending: JobEnding | None = None) -> SeenRun:
    """`run` as it is now; of a run that failed before `since` another try is to do."""
    if (holder := locks.holder(locks.directory_lock(run.run_dir))) is not None:
        return SeenRun(run, RUNNING, holder, is_new=False)
    path = run.run_dir / "status.json"
    told, state = read_json(path) or {}, status.state(run.run_dir)
    is_new = bool(told) and path.stat().st_mtime >= since
    if state == "succeeded":
        return SeenRun(run, DONE, "", is_new)
    if state in ("failed", "invalid") and is_new:
        return SeenRun(run, FAILED, f"{told.get('error')}", is_new)
    if ending and ending.state == "failed":  # before there was a directory
        return SeenRun(run, FAILED, f"{ending.error}", is_new=True)
    return SeenRun(run, TO_DO, "", is_new=False)


def lines(seen: list[SeenRun], more: str) -> list[str]:
    """Return the lines that show runs; `more` is the end of the first."""
    counts = Counter(each.state for each in seen)
    others = (f"{counts[state]} {state}" for state in (RUNNING, FAILED, TO_DO))
    shown = [", ".join([f"{counts[DONE]} of {len(seen)} done", *others]) + more]
    for state in (RUNNING, FAILED):
        which = [each for each in seen if each.state == state]
        shown += [f"  {_line(each)}" for each in which[:MOST_NAMED]]
        if len(which) > MOST_NAMED:
            shown.append(f"  and {len(which) - MOST_NAMED} more {state}")
    return shown


def _line(seen: SeenRun) -> str:
    place = f"{seen.run.run_dir.parent.name}/{seen.run.run_dir.name}"
    said = (seen.said.splitlines() or [""])[0]
    text = f"{place} {seen.run.label}: {seen.state}, {said}"
    return printable.line(text)


def _left(sweep: SweepFolder, seen: list[SeenRun]) -> str:
    """`, about 7 min left`: as many a second as have ended since the command; "" before one has."""
    left = sum(each.state in (RUNNING, TO_DO) for each in seen)
    ended = sum(each.is_new for each in seen)
    if not (left and ended):
        return ""
    return f", about {minutes_of((time.time() - sweep.asked_at) * left / ended)} left"


def _followed(sweep: SweepFolder, wait: Callable[[float], None] = time.sleep) -> list[SeenRun]:
    """Show `sweep` in the terminal until nothing is left to do; Ctrl-C ends the showing."""
    from rich.live import Live
    from rich.text import Text

    seen = look(sweep)
    with Live(Text("\n".join(lines(seen, _left(sweep, seen)))), auto_refresh=False) as live:
        try:
            while any(each.state in (RUNNING, TO_DO) for each in seen):
                wait(LOOK_S)
                seen = look(sweep)
                live.update(Text("\n".join(lines(seen, _left(sweep, seen)))), refresh=True)
        except KeyboardInterrupt:
            return seen
    return seen
