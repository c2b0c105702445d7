"""Virtual time in place of packets: at scale=laptop, where a machine forbids namespaces.

A network that was asked for by name, or that the command sweeps over, is never replaced.
"""

import functools
from dataclasses import fields
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config.settings import BadSetting, Settings
from harness.doctor import permissions
from harness.virtual.network import Simulated, SimulatedDumbbell

SCALE = "laptop"
TWINS = {"simulated": Simulated, "simulated_dumbbell": SimulatedDumbbell}  # by choice of `network`
refusal = functools.cache(permissions.refused)


class Substitute(NamedTuple):
    """A choice of `network`."""

    network: str
    in_place_of: str  # the choice it replaces, and what forbids that


def substitute(settings: Settings, hydra: Any) -> Substitute | None:
    """Virtual network to replace that of `settings`; None where nothing is to be replaced."""
    twin = _twin(settings) if settings["scale.name"] == SCALE else ""
    if not twin or _insists(list(hydra.overrides.task), TWINS[twin]) or not refusal():
        return None
    return Substitute(twin, f"{hydra.runtime.choices.network}: {refusal()}")


def _twin(settings: Settings) -> str:
    """The choice in virtual time that the network names; none where the check will refuse it."""
    try:
        return getattr(settings.build("network"), "twin", "")
    except BadSetting:
        return ""


def _insists(overrides: list[str], kind: type[Simulated]) -> bool:
    """True if an override chooses the network, or sets what only real packets have."""
    known = {f"network.{each.name}" for each in fields(kind)}
    parsed = OverridesParser.create().parse_overrides(overrides)
    keys = {override.key_or_group for override in parsed}
    return any(key == "network" or key.startswith("network.") for key in keys - known)
