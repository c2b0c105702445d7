"""Command line: `python -m harness [GROUP=CHOICE] [KEY=VALUE] [+experiment=NAME]`; -m sweeps."""

import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from harness import run, sweep

CONF = str(Path(__file__).resolve().parents[1] / "conf")
log = logging.getLogger("harness")


@hydra.main(config_path=CONF, config_name="config", version_base="1.3")
def compose(config: DictConfig) -> str:
    """One composition: check it, run it, say how it ended."""
    settings = sweep.plain_settings(config)
    if HydraConfig.get().mode == RunMode.RUN:
        sweep.check_or_exit(settings)  # a sweep has checked all of its runs already
    outcome = run.perform(settings)
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


_failures: list[run.Outcome] = []
_folders: dict[Path, None] = {}  # of the experiments that were run, in order


def main() -> NoReturn:
    """Compose, run, report; exit status 1 for a bad setting or a run that did not succeed."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)  # a shell ignores it for background jobs
    try:
        compose()
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    for folder in _folders:
        _report(folder)
    sys.exit(1 if _failures else 0)


def _report(folder: Path) -> None:
    from harness.load import NoRuns  # pandas and matplotlib: not before they are needed
    from harness.report import report

    try:
        report(folder)
    except NoRuns as nothing:
        print(f"no report: {nothing}", file=sys.stderr)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """First signal: stop in order. Second: at once, the kernel cleans up."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
