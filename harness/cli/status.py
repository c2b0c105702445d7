"""Command `report --status results/NAME`: progress of a sweep, read from its runs' files.

For the last command that started runs in this folder it shows the number of runs by state, the
remaining time, who does which run, and errors. In a terminal it updates until the sweep ends.
Without such a command it shows all runs in the folder, which were started one by one. It reads only
directories and locks, so it works on any machine that sees them.
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
MOST_NAMED = 8  # most runs listed per state
DONE, RUNNING, FAILED, TO_DO = "done", "running", "failed", "to do"


class SeenRun(NamedTuple):
    """Current state of a run of a sweep; `said` is the process that does it, or its error."""

    run: AskedRun
    state: str  # DONE, RUNNING, FAILED or TO_DO
    said: str
    is_new: bool  # True: it ended after the sweep was started


def show(folder: Path, once: bool) -> int:
    """Print the state of the sweep in `folder`; in a terminal until it ends, unless `once`.

    Return 1 if a run failed, or if there is no run, else 0.
    """
    found = _sweep(folder.absolute())
    if found is None:
        return _show_single_runs(folder)
    if sys.stdout.isatty() and not once:
        seen = _followed(found)
    else:
        seen = look(found)
        with suppress(BrokenPipeError):  # the reader closed the pipe
            print("\n".join(lines(seen, _left(found, seen))), flush=True)
    return 1 if any(run.state == FAILED for run in seen) else 0


def _sweep(folder: Path) -> SweepFolder | None:
    """Return the last sweep with a run in or below `folder`; None if there is none."""
    for results in (folder, folder.parent):
        for sweep in sweeps(results):
            if any(folder in each.run_dir.parents for each in sweep.runs()):
                return sweep
    return None


def _show_single_runs(folder: Path) -> int:
    """Print the runs below a folder without a sweep; return 1 for none or a failed one."""
    asked = []
    for path in sorted(folder.rglob("status.json")):
        run_dir = path.parent.absolute()
        if not any(name.startswith(".") for name in path.relative_to(folder).parts):
            asked.append(AskedRun(run_dir, _label(run_dir), {}))
    if not asked:
        print(f"harness report: there is no run in {folder}", file=sys.stderr)
        return 1
    seen = [_seen(run, since=0.0) for run in asked]
    with suppress(BrokenPipeError):  # the reader closed the pipe
        print("\n".join(lines(seen, ", each asked for by a command of its own")), flush=True)
    return 1 if any(each.state == FAILED for each in seen) else 0


def _label(run_dir: Path) -> str:
    """Return a run's method and seed; "run" if its config.yaml is damaged."""
    try:
        config = plain_yaml.read((run_dir / "config.yaml").read_text())
        return f"{config['method']['name']} seed {config['seed']}"
    except (OSError, ValueError, KeyError, TypeError, YAMLError):
        return "run"


def look(sweep: SweepFolder) -> list[SeenRun]:
    """Return the state of each run of `sweep`, in order."""
    since = sweep.asked_at
    return [_seen(each, since, sweep.ending(n)) for n, each in enumerate(sweep.runs())]


def _seen(run: AskedRun, since: float, ending: JobEnding | None = None) -> SeenRun:
    """Return the state of `run`. One that failed before the time `since` will be tried again."""
    if (holder := locks.holder(locks.directory_lock(run.run_dir))) is not None:
        return SeenRun(run, RUNNING, holder, is_new=False)
    path = run.run_dir / "status.json"
    told, state = read_json(path) or {}, status.state(run.run_dir)
    is_new = bool(told) and path.stat().st_mtime >= since
    if state == "succeeded":
        return SeenRun(run, DONE, "", is_new)
    if state in ("failed", "invalid") and is_new:
        return SeenRun(run, FAILED, f"{told.get('error')}", is_new)
    if ending and ending.state == "failed":  # the job failed before it made a run directory
        return SeenRun(run, FAILED, f"{ending.error}", is_new=True)
    return SeenRun(run, TO_DO, "", is_new=False)


def lines(seen: list[SeenRun], more: str) -> list[str]:
    """Return the lines that show the runs; the first one ends with `more`."""
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
    """Return `, about 7 min left`, from the mean pace of ended runs; "" before one has ended."""
    left = sum(each.state in (RUNNING, TO_DO) for each in seen)
    ended = sum(each.is_new for each in seen)
    if not (left and ended):
        return ""
    return f", about {minutes_of((time.time() - sweep.asked_at) * left / ended)} left"


def _followed(sweep: SweepFolder, wait: Callable[[float], None] = time.sleep) -> list[SeenRun]:
    """Show `sweep` in the terminal until it ends or Ctrl-C; return the states shown last."""
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
