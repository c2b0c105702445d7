"""What a command says of a run that has ended, and of all of them together."""

import logging
import sys
from pathlib import Path

from harness.config.settings import Settings
from harness.records.run_directory import read_json
from harness.runner import run

log = logging.getLogger("harness")


def tell(settings: Settings, outcome: run.Outcome) -> None:
    """Say how the run ended, and where its results are."""
    label = f"{settings['method.name']} seed {settings['seed']}: {outcome.run_dir}"
    if outcome.skipped:
        log.info("skipped, succeeded before: %s (rerun=true to run again)", label)
    elif outcome.state == "succeeded":
        log.info("succeeded: %s%s", label, _resting(outcome.run_dir))
    else:
        log.error("%s\n%s", label, run.failure_report(outcome))


def _resting(run_dir: Path) -> str:
    """Whose training a run in virtual time rests on; empty: its own."""
    curve = (read_json(run_dir / "summary.json") or {}).get("curve")
    return f", timed by the training of {curve['run']} (reuse_training)" if curve else ""


def show_report(folder: Path) -> None:
    """Print the report of `folder`, or why there is none."""
    from harness.report import report
    from harness.reporting.analysis.load import (
        NoRuns,  # pandas and matplotlib: not before they are needed
    )

    try:
        report(folder)
    except NoRuns as nothing:
        print(f"no report: {nothing}", file=sys.stderr)
