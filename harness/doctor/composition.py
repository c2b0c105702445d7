"""A run, and its requirements on a machine."""

from typing import Any, NamedTuple

from harness.config.run import Run
from harness.config.settings import Settings
from harness.emulation.topology import Topology
from harness.validation import checked

ANYWHERE = {  # parts that every machine can have
    "dataset": {"_target_": "harness.workloads.data.digits.Digits"},
    "profile": {"_target_": "profiles.static.Static", "rate_mbit": 100.0},
    "network": {"_target_": "harness.emulation.star.Star", "congestion_control": "reno"},
}


class Composition(NamedTuple):
    """One run, and the plain values that it was made of."""

    run: Run
    settings: Settings

    @property
    def results(self) -> str:
        """Folder of the results."""
        return str(self.settings["results"])

    @property
    def as_told(self) -> dict[str, Any]:
        """Return plain values from which another process builds the run's network and profile."""
        told = {key: self.settings[key] for key in ("network", "profile")}
        return told | {"nodes": self.run.nodes, "dilation": self.run.emulation.dilation}

    @property
    def on_gpus(self) -> bool:
        """True if workers get GPUs here. Otherwise all compute on the CPU."""
        return self.run.device_type(self.run.workers) == "cuda"

    @property
    def impairments(self) -> dict[str, float]:
        """Return the profile's largest delay_ms, jitter_ms, loss and reorder above 0."""
        most = self.run.profile.extremes()._asdict()
        found = {name: most[name] for name in ("delay_ms", "jitter_ms", "loss", "reorder")}
        return {name: value for name, value in found.items() if value}

    @property
    def needs_netem(self) -> bool:
        """True if the profile or the network itself delays, loses or reorders packets."""
        network = self.run.network
        return isinstance(network, Topology) and network.needs_netem(self.run.profile)

    @property
    def is_on_real_interfaces(self) -> bool:
        """True if the run spans several machines, which have to take part."""
        return self.run.network.machines_of_run() > 1


def build(settings: Settings) -> Composition:
    """Build a run from its settings. Raise BadSetting for values that work on no machine.

    Missing files, GPUs or queueing disciplines are reported by their own checks.
    """
    config = settings.config | ANYWHERE
    if config["device"] == "cuda":
        config["device"] = "auto"
    checked(Settings(config))
    return Composition(settings.run(), settings)
