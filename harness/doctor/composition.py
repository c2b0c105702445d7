"""The runs that a command line describes, composed as `python -m harness` does, and their needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from harness import nodes
from harness.settings import PARTS, Settings
from harness.sweep import here, plain_settings, runs

CONF = Path(__file__).resolve().parents[2] / "conf"
SWEEP = ("-m", "--multirun")
ANYWHERE = {  # parts that every machine can have
    "dataset": {"_target_": "harness.data.digits.Digits"},
    "profile": {"_target_": "profiles.static.Static", "rate_mbit": 100.0},
    "network": {"_target_": "harness.network.star.Star", "congestion_control": "reno"},
}


class Composition(NamedTuple):
    """One run: its settings and its parts, built."""

    settings: Settings
    parts: dict[str, Any]

    @property
    def nodes(self) -> int:
        return nodes.of(self.settings.config)

    @property
    def is_in_virtual_time(self) -> bool:
        """Whether it needs neither namespaces nor packets."""
        return self.parts["network"].in_process

    @property
    def on_gpus(self) -> bool:
        """Whether every worker gets a GPU of its own here; else all compute on the CPU."""
        wanted, gpus = self.settings["device"], torch.cuda.device_count()
        return wanted != "cpu" and gpus >= self.settings["workers"]

    @property
    def impairments(self) -> dict[str, float]:
        """What the profile does at most, beside its rate, that only netem can do."""
        most = self.parts["profile"].extremes()._asdict()
        found = {name: most[name] for name in ("delay_ms", "jitter_ms", "loss", "reorder")}
        return {name: value for name, value in found.items() if value}

    @property
    def needs_netem(self) -> bool:
        """Whether the profile or the network itself delays, loses or reorders packets."""
        return self.parts["network"].is_cut(self.parts["profile"])

    @property
    def is_on_real_interfaces(self) -> bool:
        """Whether other machines have to take part."""
        return self.parts["network"].machines_of_run() > 1

    @property
    def flows(self) -> int:
        return self.parts["profile"].extremes().flows


def compose(arguments: Sequence[str]) -> list[Settings]:
    """Settings of the run, or of every run of the sweep; HydraException for what cannot be."""
    overrides = [argument for argument in arguments if argument not in SWEEP]
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="harness"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration(
            "config", overrides, run_mode=RunMode.MULTIRUN, validate_sweep_overrides=False
        )
        if len(overrides) < len(arguments) or config.hydra.mode == RunMode.MULTIRUN:
            return list(runs(config))
        found = loader.load_configuration("config", overrides, RunMode.RUN)
        return [here(plain_settings(found), found.hydra)]


def build(settings: Settings) -> Composition:
    """Its parts; BadSetting for values that work on no machine.

    What this machine may lack, files of a data set, GPUs or queues of the kernel, is left to the
    checks of those.
    """
    config = settings.config | ANYWHERE
    if config["device"] == "cuda":
        config["device"] = "auto"
    Settings(config).check()
    return Composition(settings, {part: settings.build(part) for part in PARTS})
