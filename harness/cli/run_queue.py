"""Run a command's runs one after another, report each, and compute the exit status."""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.config.settings import Settings
from harness.records.outputs import CannotWrite
from harness.records.run_directory import read_json
from harness.runner import run
from harness.runner.progress import Display

NOT_VALID = 3  # exit status if a run is not valid
log = logging.getLogger("harness")


def in_turn(
    runs: list[Settings], perform: Callable[[Settings], run.Outcome], display: Display | None = None
) -> int:
    """Perform every run, log its ending, print the reports, and return the exit status.

    The status is 0 if all runs are valid, NOT_VALID if all finished but some are not valid (for
    example on a busy machine), else 1. `display` counts the runs; `perform` may show them with it.
    """
    display = display or Display(len(runs))
    states, folders = [], dict[Path, None]()  # a dict keeps the order without repetition
    for settings in runs:
        display.next_run()
        outcome = perform(settings)
        display.ended(settings)
        _log_end(settings, outcome, display.place())
        states.append(outcome.state)
        if settings["report"] and not outcome.run_dir.parent.name.startswith("."):
            folders[outcome.run_dir.parent] = None
    for folder in folders:
        _show_report(folder)
    return status_of(states)


def status_of(states: Iterable[str]) -> int:
    """Return the exit status of a command whose runs ended in `states`."""
    other = set(states) - {"succeeded"}
    return 0 if not other else NOT_VALID if other == {"invalid"} else 1


def _log_end(settings: Settings, outcome: run.Outcome, place: str) -> None:
    """Log a run's ending and its directory; `place` is its position among the command's runs."""
    label = f"{settings['method.name']} seed {settings['seed']}: {outcome.run_dir}"
    place = f"; {place}" if place else ""
    if outcome.skipped:
        log.info("skipped, succeeded before: %s (rerun=true to run again)%s", label, place)
    elif outcome.state == "succeeded":
        curve = (read_json(outcome.run_dir / "summary.json") or {}).get("curve")
        timed = f", timed by the training of {curve['run']} (reuse_training)" if curve else ""
        log.info("succeeded: %s%s%s", label, timed, place)
    else:
        log.error("%s%s\n%s", label, place, run.failure_report(outcome))


def _show_report(folder: Path) -> None:
    """Print the report of `folder`, or why there is none."""
    from harness.reporting.analysis.load import (
        NoRuns,  # imports pandas and matplotlib, so only on demand
    )
    from harness.reporting.report import report

    try:
        report(folder)
    except (NoRuns, CannotWrite) as nothing:
        print(f"no report: {nothing}", file=sys.stderr)
