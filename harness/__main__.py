"""Command line: `python -m harness [GROUP=CHOICE] [KEY=VALUE] [+experiment=NAME]`; -m sweeps."""

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from harness import interrupts, sweep
from harness.runner import run
from harness.settings import BadSetting, Settings

if TYPE_CHECKING:
    from harness.plan import Plan

CONF = str(Path(__file__).resolve().parents[1] / "conf")
log = logging.getLogger("harness")


@hydra.main(config_path=CONF, config_name="config", version_base="1.3")
def compose(config: DictConfig) -> str:
    """One composition, checked already: run it, say how it ended."""
    settings = sweep.here(sweep.plain_settings(config), HydraConfig.get())
    _tell_substitute(settings)
    if settings["plan"]:
        return _plan(settings)
    try:
        outcome = run.perform(settings)
    except BadSetting as error:
        sys.exit(f"harness: {error}")
    label = f"{settings['method.name']} seed {settings['seed']}: {outcome.run_dir}"
    if outcome.skipped:
        log.info("skipped, succeeded before: %s (rerun=true to run again)", label)
    elif outcome.state == "succeeded":
        log.info("succeeded: %s", label)
    else:
        log.error("%s\n%s", label, run.failure_report(outcome))
        _failures.append(outcome)
    if settings["report"] and not outcome.run_dir.parent.name.startswith("."):
        _folders[outcome.run_dir.parent] = None
    return outcome.state


def _tell_substitute(settings: Settings) -> None:
    """Once for each reason: that there will be no packets, and what to do for them."""
    reason = settings["network"].get("in_place_of")
    if reason and reason not in _told:
        _told.add(reason)
        log.warning("virtual time, no packets, in place of network=%s", reason)
        log.warning("`python -m harness.doctor network=%s` says what to do", reason.split(":")[0])


def _plan(settings: Settings) -> str:
    """Predict instead of running."""
    from harness.plan import Plan  # torch: not before it is needed

    if not _planned:
        _planned.append(Plan())
    try:
        found = _planned[0].add(settings)
    except BadSetting as error:
        sys.exit(f"harness: {error}")
    return f"{found.time_s:g}"


_planned: list["Plan"] = []  # at most one, of all runs
_told: set[str] = set()  # why networks were replaced
_failures: list[run.Outcome] = []
_folders: dict[Path, None] = {}  # of the experiments that were run, in order


def main() -> NoReturn:
    """Compose, run, report; exit status 1 for a bad setting or a run that did not succeed."""
    interrupts.stop_in_order()
    try:
        compose()
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            print("interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    for plan in _planned:
        _show(plan)
    for folder in _folders:
        _report(folder)
    sys.exit(1 if _failures else 0)


def _show(plan: "Plan") -> None:
    from rich.console import Console

    from harness.analysis import tables

    console = Console(width=None if sys.stdout.isatty() else tables.WIDTH, highlight=False)
    rows = [(run["method.name"], *rest) for run, *rest in plan.settings()]
    console.print(tables.plan(rows, plan.apart()))
    console.print(tables.plan_in_all(rows), markup=False)


def _report(folder: Path) -> None:
    from harness.analysis.load import NoRuns  # pandas and matplotlib: not before they are needed
    from harness.report import report

    try:
        report(folder)
    except NoRuns as nothing:
        print(f"no report: {nothing}", file=sys.stderr)


if __name__ == "__main__":
    main()
