"""Sweeps: Hydra's own sweeper, with every run checked before the first one starts."""

import atexit
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from harness.records import refusal
from harness.settings import BadSetting, Settings, check_numbers
from harness.simulate.substitute import substitute


class CheckFirst(Callback):
    """A bad value anywhere stops a run, or a whole sweep, before it costs anything."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        _leave_nothing(config)
        check_or_exit(here(plain_settings(config), config.hydra))

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        for settings in runs(config):
            check_or_exit(settings)
        _leave_nothing(config)


def runs(config: DictConfig) -> Iterator[Settings]:
    """Every run of the sweep that `config`, composed by the Hydra that is up, describes."""
    loader = GlobalHydra.instance().config_loader()
    swept = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    parser = OverridesParser.create(config_loader=loader)
    overrides = parser.parse_overrides(swept + list(config.hydra.overrides.task))
    [choices] = BasicSweeper.split_arguments(overrides, None)
    for choice in choices:
        found = loader.load_sweep_config(config, choice)
        yield here(plain_settings(found), found.hydra)


def here(settings: Settings, hydra: Any) -> Settings:
    """`settings`, composed by the Hydra that is up; in virtual time if that is all there can be."""
    if (instead := substitute(settings, hydra)) is None:
        return settings
    loader = GlobalHydra.instance().config_loader()
    overrides = [*hydra.overrides.hydra, *hydra.overrides.task, f"network={instead.network}"]
    found = plain_settings(loader.load_configuration("config", overrides, RunMode.RUN))
    found.config["network"]["in_place_of"] = instead.in_place_of
    return found


def _leave_nothing(config: DictConfig) -> None:
    """Hydra's own folder, where nothing is run, is one that goes with this process."""
    if config.plan:
        folder = TemporaryDirectory(prefix="gradnet-plan-")
        atexit.register(folder.cleanup)
        with read_write(config), open_dict(config):
            config.hydra.run.dir = config.hydra.sweep.dir = folder.name
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir={folder.name}")  # of its jobs


def check_or_exit(settings: Settings) -> None:
    """End the program with one line when a setting cannot work (Hydra would print a traceback)."""
    try:
        check_numbers(settings)
        if settings["plan"]:
            from harness import plan  # torch: not before it is needed

            plan.check(settings)
            return
        settings.check()
        _check_folder(Path(settings["results"]).absolute())
    except BadSetting as error:
        sys.exit(f"harness: {error}")


def _check_folder(results: Path) -> None:
    """Results can be written; BadSetting when they cannot."""
    wanted = "results must be a folder that can be written"
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"{wanted}, got {results}: {error.strerror}") from error
    if why := refusal(results):
        raise BadSetting(f"{wanted}, got {why}")


def plain_settings(config: DictConfig) -> Settings:
    """Hydra's configuration as plain values, without Hydra's own section."""
    copy = config.copy()
    with open_dict(copy):
        copy.pop("hydra", None)
    values = OmegaConf.to_container(copy, resolve=True, throw_on_missing=True)
    assert isinstance(values, dict)
    return Settings({str(key): value for key, value in values.items()})
