"""Choice of the scale (paper or laptop), and composition of the runs of a command line.

Without a given scale the paper's is chosen if this machine has its data and devices.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from harness.config import sweep
from harness.config.refused import in_a_line
from harness.config.settings import BadSetting, Settings

if TYPE_CHECKING:
    from harness.config.run import Run

PAPER, LAPTOP, AUTO = "paper", "laptop", "auto"
OF_SCALE = re.compile(r"\$\{[^}]*\bscale\b")  # an interpolation of the scale


class Described(NamedTuple):
    """Settings of all runs of a command line, and how their scale was chosen."""

    runs: list[Settings]
    scale: str  # the chosen scale and the reason; "" if it was given
    overrides: list[list[str]]  # overrides of each run
    hydra: DictConfig  # Hydra's configuration of the first run, with its launcher


def compose(arguments: Sequence[str]) -> list[Settings]:
    """Return the settings of all runs. Raise HydraException if they cannot be composed."""
    return describe([arguments]).runs


def describe(commands: Sequence[Sequence[str]]) -> Described:
    """Compose the runs of all `commands`, lists of overrides, in order.

    If a scale must be chosen, it is one for all. Raise BadSetting if the commands make no run.
    """
    with sweep.hydra():
        added, said = _chosen(commands)
        overrides = [
            choice
            for command in commands
            for choice in sweep.choices([*(each for each in command if not _is_auto(each)), *added])
        ]
        if not overrides:
            raise BadSetting(f"{' '.join(map(' '.join, commands))}: these values make no run")
        found = [sweep.settings_of(choice) for choice in overrides]
        return Described(found, said, overrides, sweep.load(overrides[0]))


def chosen(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` with the chosen scale added, if one must be chosen."""
    with sweep.hydra():
        added, _ = _chosen([arguments])
    return [*(each for each in arguments if not _is_auto(each)), *added]


def _chosen(commands: Sequence[Sequence[str]]) -> tuple[list[str], str]:
    """Return the arguments to add to each command, and a line that explains them."""
    asked = [[each for each in command if not _is_auto(each)] for command in commands]
    if any(_says_scale(each) for each in asked):
        return [], ""
    try:
        composed = [
            kind for command in asked for kind in _kinds(command)
        ]  # at the default scale, paper
    except sweep.OnlyAStandIn:
        return [f"scale={LAPTOP}"], f"scale={LAPTOP}: the paper's model or data is not published"
    if not any(map(may_depend_on_scale, composed)):
        return [], ""
    paper = [sweep.plain_settings(each) for each in composed]
    at_laptop = ([*command, f"scale={LAPTOP}"] for command in asked)
    laptop = [sweep.plain_settings(kind) for command in at_laptop for kind in _kinds(command)]
    if _without_scale(paper) == _without_scale(laptop):
        return [], ""
    why = next(filter(None, map(lacks, paper)), "")
    if not why:
        said = "the paper's data and devices are here (scale=laptop is smaller)"
        return [f"scale={PAPER}"], f"scale={PAPER}: {said}"
    return [f"scale={LAPTOP}"], f"scale={LAPTOP}: {why} (scale=paper insists)"


def _is_auto(override: str) -> bool:
    return override == f"scale={AUTO}"


def _says_scale(arguments: Sequence[str]) -> bool:
    """Return True if the command line or its experiment sets the scale."""
    asked = [each for each in arguments if each not in sweep.MULTIRUN]
    parsed = OverridesParser.create().parse_overrides(asked)
    if any(sweep.key_of(each) == "scale" for each in parsed):
        return True
    try:
        composed = sweep.load(asked, sweep.RunMode.MULTIRUN)
    except sweep.OnlyAStandIn:
        return False
    return bool(composed.hydra.runtime.choices["scale"] != PAPER)


def may_depend_on_scale(config: DictConfig) -> bool:
    """Return False if `config`, composed at the paper's scale, refers to no scale anywhere."""
    choices = {**config.hydra.runtime.choices, "scale": None}
    if any(PAPER in str(choice) for choice in choices.values()):
        return True
    return bool(OF_SCALE.search(str(OmegaConf.to_container(config, resolve=False))))


def _kinds(arguments: Sequence[str]) -> list[DictConfig]:
    """Return one configuration for each set of runs that differ only in method or seed."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for choice in sweep.choices(arguments):
        kinds.setdefault(tuple(each for each in choice if not _is_of_a_method(each)), choice)
    return [sweep.load(choice) for choice in kinds.values()]


def _is_of_a_method(override: str) -> bool:
    key = override.partition("=")[0].lstrip("+~")
    return key.partition(".")[0] in (*sweep.OF_A_METHOD, "seed", "network_seed")


def _without_scale(runs: list[Settings]) -> list[dict[str, object]]:
    return [{key: of for key, of in each.config.items() if key != "scale"} for each in runs]


def lacks(settings: Settings) -> str:
    """Name the data or devices that a run needs and this machine lacks; "" if none."""
    try:
        run = settings.run()
        return _missing_data(run) or _missing_devices(run)
    except BadSetting:
        return ""  # invalid at any scale: the check of the runs reports it


def _missing_data(run: "Run") -> str:
    if not run.emulation.is_replay:
        try:
            run.find_files()
        except FileNotFoundError as error:
            return str(error).split(". ")[0].split(": ")[0]
    return ""


def _missing_devices(run: "Run") -> str:
    import torch

    gpus, workers = torch.cuda.device_count(), run.workers // run.network.machines_of_run()
    if not run.network.in_process and gpus < workers:
        return f"{workers} workers need a GPU each, and {gpus} are here"
    return ""


def composed(overrides: Sequence[str]) -> tuple[Settings, str]:
    """Return the settings of a single run, and the name of its profile's choice.

    Lines of an experiment's comparison are ignored. Raise BadSetting if `overrides` sweep a key.
    """
    with in_a_line(overrides):
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            if override.is_sweep_override():
                raise BadSetting(
                    f"{override.input_line}: this command is of one run, so say one value"
                )
        found = chosen(overrides)
        with sweep.hydra():
            config = sweep.load(found)
        return sweep.plain_settings(config), str(config.hydra.runtime.choices["profile"])
