"""Command `run`: `python -m harness [GROUP=CHOICE] [KEY=VALUE] [+experiment=NAME]`; -m sweeps."""

import logging
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from harness.config import sweep
from harness.config.refused import in_a_line
from harness.config.scales import AUTO, LAPTOP, PAPER, Described, chosen, describe
from harness.config.search_path import CONF, keys
from harness.config.settings import BadSetting, Settings
from harness.config.typed import require
from profiles import recordings

if TYPE_CHECKING:
    from harness.predict.plan import Plan

SHOWING = {"--hydra-help", "-c", "--cfg", "-i", "--info"}
SHOWING |= {"-sc", "--shell-completion", "-p", "--package", "--resolve"}
log = logging.getLogger("harness")


def main(arguments: list[str]) -> int:
    """Compose, check and do the runs of a command line, and report; return the exit status.

    Raise BadSetting before anything starts.
    """
    if any(argument.partition("=")[0] in SHOWING for argument in arguments):
        _show_composition(arguments)
        return 0
    return _perform(_checked_or_refused(arguments))


def _show_composition(arguments: list[str]) -> None:
    """Print the composed configuration, or other information, with Hydra's own options."""
    if "--cfg" in arguments or "-c" in arguments:
        overrides = [each for each in arguments if "=" in each and each[0] != "-"]
        with in_a_line(overrides):
            scale = [each for each in chosen(overrides) if each not in overrides]
        arguments = [each for each in arguments if each != f"scale={AUTO}"] + scale
    import hydra

    sys.argv[1:] = arguments
    hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(_nothing)()


def _nothing(config: DictConfig) -> None:
    """Do nothing: options that show information start no run."""


def _checked_or_refused(arguments: list[str]) -> Described:
    """Return the checked runs; any error is a one-line BadSetting before anything starts."""
    with in_a_line(arguments, launches=True):
        return _checked(arguments)


def _checked(arguments: list[str]) -> Described:
    """Compose and check all runs, then create the results folder; raise BadSetting if one fails."""
    options = [each for each in arguments if each[:1] == "-" and each not in sweep.MULTIRUN]
    if options:
        known = "--help, --cfg job, --config-dir, --studies and -m"
        raise BadSetting(f"options must be of {known}, got {_written(options[0])}")
    found = describe([arguments])
    from harness.cli import launchers  # imports torch, so only after plain values are checked
    from harness.validation import check_folder

    launchers.check(found.overrides)
    for settings in found.runs:
        _check(settings)
    for settings in found.runs:  # only if all are valid, as this creates the folder
        if not (settings["plan"] or settings["draw"]):
            check_folder(settings)
    if found.scale:
        log.info(found.scale)
    return found


def _written(option: str) -> str:
    """Return an unknown option, with the KEY=VALUE to write if it is the name of a key."""
    name, *value = re.split("[= ]", option.lstrip("-"), maxsplit=1)
    key = name.replace("-", "_")
    usual = {"plan": "true", "rerun": "true"}.get(key, "VALUE")
    is_key = key.partition(".")[0] in keys()
    return f"{option}; write {key}={value[0] if value else usual}" if is_key else option


def _check(settings: Settings) -> None:
    scale = settings["scale.name"]
    require(scale in (PAPER, LAPTOP), "scale.name", scale, "paper or laptop, as scale=NAME says")
    if settings["plan"]:
        from harness.predict import plan  # imports torch, so only on demand

        plan.check(settings.run())
        return
    if settings["draw"]:
        return  # `draw` checks its own input
    from harness.validation import checked

    checked(settings)


def _perform(found: Described) -> int:
    """Plan, draw or do all runs; return the exit status."""
    from harness.cli import launchers
    from harness.cli.run_queue import in_turn
    from harness.runner import run
    from harness.runner.progress import Display

    for reason in dict.fromkeys(each["network"].get("in_place_of") for each in found.runs):
        if reason:
            log.warning("virtual time, no packets, in place of network=%s", reason)
            log.warning(
                "`python -m harness.doctor network=%s` says what to do", reason.split(":")[0]
            )
    parts = [settings.build(part) for settings in found.runs for part in ("profile", "network")]
    for note in recordings.notes(*parts):
        log.warning(note)
    planned = [settings for settings in found.runs if settings["plan"]]
    if planned:
        _plan(planned)
    drawn = [settings for settings in found.runs if settings["draw"] and not settings["plan"]]
    if drawn:
        from harness.cli.draw import draw

        draw(drawn)
    pairs = zip(found.runs, found.overrides, strict=True)
    todo = [
        (settings, said) for settings, said in pairs if not (settings["plan"] or settings["draw"])
    ]
    runs = [settings for settings, _ in todo]
    estimate = None
    if len(runs) > 1:
        from harness.predict.cost_estimate import announced  # imports torch, so only on demand

        said, estimate, added = announced(runs)
        log.info(said)
        if added:
            log.warning(added)
    if runs and not launchers.is_serial(found.hydra):
        return launchers.launched(runs, [each for _, each in todo], found.hydra)
    if len(runs) > 1:
        launchers.asked(runs)
    display = Display(len(runs), estimate)
    return in_turn(runs, partial(run.perform, display=display), display)


def _plan(runs: list[Settings]) -> None:
    """Print predictions of the runs instead of doing them."""
    from harness.predict.plan import Plan

    plan = Plan()
    for settings in runs:
        plan.add(settings, settings.run())
    _show(plan)


def _show(plan: "Plan") -> None:

    from harness.engine.training import forms
    from harness.predict.cost_estimate import host_overhead
    from harness.reporting.analysis import tables, terminal
    from harness.workloads import form

    console = terminal.console()
    rows = [(asked.run.label, runs, each) for asked, runs, each in plan.settings()]
    console.print(terminal.table(tables.plan(rows, plan.apart())))
    found = (form.said(forms.forms(asked.run)) for asked, *_ in plan.settings())
    for line in dict.fromkeys(filter(None, found)):
        console.print(line, markup=False)
    if assumed := plan.assumed():
        console.print(assumed, markup=False)
    if said := host_overhead(asked.run for asked, *_ in plan.settings()):
        console.print(said, markup=False)
    console.print(terminal.plan_in_all(rows), markup=False)
