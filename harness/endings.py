"""The runs of a command in turn, and what it says of each that has ended and of all together."""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from harness.clock import minutes_of
from harness.config.settings import Settings
from harness.records.outputs import CannotWrite
from harness.records.run_directory import read_json
from harness.runner import run

NOT_VALID = 3  # exit status
log = logging.getLogger("harness")


class TimeLeft(Protocol):
    """Estimate of the time that runs take, by those that have ended."""

    def begin(self) -> None: ...

    def ended(self, settings: Settings) -> None: ...

    def left_s(self) -> float: ...


def in_turn(
    runs: list[Settings],
    perform: Callable[[Settings], run.Outcome],
    estimate: TimeLeft | None = None,
) -> int:
    """Perform every run, say how each ended and what is left, report; the exit status.

    1 where one did not come to its end, NOT_VALID where all did and one of them is not to be
    believed, as on a machine that was busy. `estimate` is of all of them; without one no time is
    told.
    """
    states, folders = [], dict[Path, None]()  # in order, each once
    if estimate:
        estimate.begin()
    for done, settings in enumerate(runs, 1):
        outcome = perform(settings)
        if estimate:
            estimate.ended(settings)
        _tell(settings, outcome, _progress(done, len(runs), estimate))
        states.append(outcome.state)
        if settings["report"] and not outcome.run_dir.parent.name.startswith("."):
            folders[outcome.run_dir.parent] = None
    for folder in folders:
        _show_report(folder)
    return status_of(states)


def status_of(states: Iterable[str]) -> int:
    """Exit status of a command whose runs ended in `states`."""
    other = set(states) - {"succeeded"}
    return 0 if not other else NOT_VALID if other == {"invalid"} else 1


def _progress(done: int, of: int, estimate: TimeLeft | None) -> str:
    """`; 3 of 15, about 12 min left`; empty for a run that is alone."""
    left_s = estimate.left_s() if estimate else 0.0
    left = f", about {minutes_of(left_s)} left" if left_s else ""
    return f"; {done} of {of}{left}" if of > 1 else ""


def _tell(settings: Settings, outcome: run.Outcome, progress: str) -> None:
    """Say how the run ended, and where its results are."""
    label = f"{settings['method.name']} seed {settings['seed']}: {outcome.run_dir}"
    if outcome.skipped:
        log.info("skipped, succeeded before: %s (rerun=true to run again)%s", label, progress)
    elif outcome.state == "succeeded":
        log.info("succeeded: %s%s%s", label, _resting(outcome.run_dir), progress)
    else:
        log.error("%s%s\n%s", label, progress, run.failure_report(outcome))


def _resting(run_dir: Path) -> str:
    """Whose training a run in virtual time rests on; empty: its own."""
    curve = (read_json(run_dir / "summary.json") or {}).get("curve")
    return f", timed by the training of {curve['run']} (reuse_training)" if curve else ""


def _show_report(folder: Path) -> None:
    """Print the report of `folder`, or why there is none."""
    from harness.report import report
    from harness.reporting.analysis.load import (
        NoRuns,  # pandas and matplotlib: not before they are needed
    )

    try:
        report(folder)
    except (NoRuns, CannotWrite) as nothing:
        print(f"no report: {nothing}", file=sys.stderr)
