"""Sweeps on one of Hydra's launchers (joblib, submitit_local, submitit_slurm), a job per run.

The command composes and checks all runs first. A job reads its run's settings from the sweep's
folder, does the run, and writes its ending there. The command reads all results from there and from
the run directories.
"""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict

from harness.cli.run_queue import in_turn
from harness.config.settings import BadSetting, Settings
from harness.records import status
from harness.records.sweep_folder import FOLDER, JOBS, AskedRun, JobEnding, SweepFolder
from harness.runner import previous_result, run, signals

SERIAL = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
OF_HYDRA = "hydra"  # prefix of Hydra's own keys
log = logging.getLogger("harness")


def is_serial(config: DictConfig) -> bool:
    """Return True if Hydra's `config` runs one job after another in this process."""
    return bool(config.hydra.launcher._target_ == SERIAL)


def check(overrides: list[list[str]]) -> None:
    """Raise BadSetting if the runs have different overrides of Hydra: one launcher does all."""
    said = {tuple(one for one in each if one.startswith(OF_HYDRA)) for each in overrides}
    if len(said) > 1:
        several = " and ".join(sorted(" ".join(each) for each in said)[:2])
        raise BadSetting(f"hydra must be one for all runs, got {several}; give one launcher")


def asked(runs: Sequence[Settings]) -> SweepFolder:
    """Write the list of runs to the sweep's folder, for `report --status` and the jobs."""
    found = [
        AskedRun(each.run_dir(), f"{each['method.name']} seed {each['seed']}", each.config)
        for each in runs
    ]
    return SweepFolder.of(Path(runs[0]["results"]).absolute(), found)


def launched(runs: list[Settings], overrides: list[list[str]], config: DictConfig) -> int:
    """Let the launcher of Hydra's `config` do `runs`, report each, and return the exit status.

    `overrides` of each run name its job. Runs that succeeded before are not launched. Runs that
    reuse another's training come last, so that it has mostly ended. KeyboardInterrupt leaves a
    scheduler's jobs alone.
    """
    sweep = asked(runs)
    left = [
        number
        for number, settings in enumerate(runs)
        if not previous_result.is_kept(settings.run_dir(), settings)
    ]
    left = _in_order(runs, left)
    for number in left:
        sweep.forget(number)
    said = ""
    if left:
        shown = runs[0].run_dir().parent
        log.info("%d jobs; `python -m harness.report --status %s` shows them", len(left), shown)
        try:
            _launch(LaunchedRun(sweep, left), [overrides[each] for each in left], config)
        except KeyboardInterrupt:
            log.info("jobs that a scheduler has go on; the same command waits for them and goes on")
            raise
        except Exception as error:  # launchers may raise anything; jobs write their endings
            said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    numbers = iter(range(len(runs)))

    def ended(settings: Settings) -> run.Outcome:
        number = next(numbers)
        return _outcome(sweep, number, settings, said) if number in left else run.perform(settings)

    return in_turn(runs, ended)


def _in_order(runs: Sequence[Settings], numbers: list[int]) -> list[int]:
    """Sort `numbers` of runs so that runs that reuse another's training come last."""
    from harness.virtual.curve import Trainings  # imports torch, so only on demand

    trainings = Trainings()
    return sorted(
        numbers, key=lambda each: trainings.is_known(runs[each]["results"], runs[each].run())
    )


def _outcome(sweep: SweepFolder, number: int, settings: Settings, said: str) -> run.Outcome:
    """Return run `number`'s outcome; raise BadSetting if refused. `said`: the launcher's error."""
    if ending := sweep.ending(number):
        if ending.refused:
            raise BadSetting(ending.error or "")
        return run.Outcome(Path(ending.run_dir), ending.state, ending.error, ending.skipped)
    run_dir = settings.run_dir()
    state = status.state(run_dir)
    if state == "running" or state not in status.FINAL or state == "succeeded":
        state = "failed"
    why = f"its job has not said how it ended ({said or 'nor has the launcher'})"
    return run.Outcome(run_dir, state, f"{why}; see {sweep.path.parent / JOBS}", skipped=False)


@dataclass(frozen=True)
class LaunchedRun:
    """Function that a launcher's job calls to do one run, by the number Hydra gives the job."""

    sweep: SweepFolder
    numbers: list[int]  # numbers of the runs that are jobs

    def __call__(self, config: DictConfig) -> None:
        """Do the run of this Hydra job, and write how it ended to the sweep's folder.

        `config` is ignored: Hydra's job number selects the run. Raise whatever the run raises,
        after writing it. The process changes for good. Signals interrupt in order, warnings go to
        stderr, and TTY_COMPATIBLE=0 is set. A skipped run does not overwrite an ending as
        succeeded, as of a requeued job.
        """
        number = self.numbers[HydraConfig.get().job.num]
        asked_run = self.sweep.runs()[number]
        before = self.sweep.ending(number)  # set if a scheduler requeued the job
        signals.stop_in_order()
        os.environ["TTY_COMPATIBLE"] = "0"  # jobs may share a terminal, so print plain lines
        logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
        try:
            done = run.perform(Settings(asked_run.config))
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
            told = "stopped" if stopped else f"{error}" or type(error).__name__
            state, refused = "interrupted" if stopped else "failed", isinstance(error, BadSetting)
            self.sweep.end(number, JobEnding(str(asked_run.run_dir), state, told, False, refused))
            raise
        if not (done.skipped and before and before.state == "succeeded"):
            self.sweep.end(number, JobEnding(str(done.run_dir), *done[1:]))


class _Handed:
    """Hydra's configuration loader as a launcher sees it; a job's settings were composed before."""

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        found = master_config.copy()
        with open_dict(found):
            found.hydra.overrides.task = list(sweep_overrides)
        return found


def _launch(job: LaunchedRun, overrides: list[list[str]], config: DictConfig) -> None:
    from hydra._internal.callbacks import Callbacks  # as Hydra's own sweepers pass them

    loader: Any = _Handed()
    master = config.copy()
    with open_dict(master):
        master.hydra.sweep.dir = str(job.sweep.path.parents[1] / FOLDER / JOBS)
        master.hydra.sweep.subdir = "."
        master.hydra.job_logging = master.hydra.hydra_logging = {"root": None}  # keep our logging
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks()),
        task_function=job,
        config=master,
    )
    launcher.launch(overrides, initial_job_idx=0)
