"""Virtual time in place of packets: at scale=laptop, where a machine forbids namespaces.

A network that was asked for by name, or that the command sweeps over, is never replaced.
"""

import functools
from dataclasses import fields
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.doctor import permissions
from harness.settings import Settings
from harness.simulate.network import Simulated, SimulatedDumbbell

SCALE = "laptop"
TWINS = {
    "harness.network.star.Star": ("simulated", Simulated),
    "harness.network.dumbbell.Dumbbell": ("simulated_dumbbell", SimulatedDumbbell),
}
refusal = functools.cache(permissions.refused)


class Substitute(NamedTuple):
    """A choice of `network`."""

    network: str
    in_place_of: str  # the choice it replaces, and what forbids that


def substitute(settings: Settings, hydra: Any) -> Substitute | None:
    """What is to replace the network of `settings`, which `hydra` composed; None: nothing."""
    network = settings["network"]
    if settings["scale.name"] != SCALE or network.get("_target_") not in TWINS:
        return None
    twin, kind = TWINS[network["_target_"]]
    if _insists(list(hydra.overrides.task), kind) or not refusal():
        return None
    return Substitute(twin, f"{hydra.runtime.choices.network}: {refusal()}")


def _insists(overrides: list[str], kind: type[Simulated]) -> bool:
    """Whether some override chooses the network, or sets what only real packets have."""
    known = {f"network.{each.name}" for each in fields(kind)}
    parsed = OverridesParser.create().parse_overrides(overrides)
    keys = {override.key_or_group for override in parsed}
    return any(key == "network" or key.startswith("network.") for key in keys - known)
