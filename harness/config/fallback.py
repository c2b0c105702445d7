"""Replacement of packets by virtual time at scale=laptop, on machines that forbid namespaces.

A network that the user chose by name, or that the command sweeps over, is never replaced.
"""

from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config import parts
from harness.config.settings import BadSetting, Settings

SCALE = "laptop"


class Fallback(NamedTuple):
    """A choice of `network` that replaces another one."""

    network: str
    in_place_of: str  # the replaced choice, and why it cannot run


def fallback_of(settings: Settings, hydra: Any) -> Fallback | None:
    """Return the virtual network that must replace the network of `settings`; None if none must."""
    if settings["scale.name"] != SCALE:
        return None
    try:
        network = settings.build("network")
    except BadSetting:
        return None  # the check of the run reports it
    twin = getattr(network, "twin", "")
    if not twin or _insists(list(hydra.overrides.task), twin) or not (refusal := network.refusal()):
        return None
    return Fallback(twin, f"{hydra.runtime.choices.network}: {refusal}")


def _insists(overrides: list[str], twin: str) -> bool:
    """Return True if an override chooses the network, or sets a key that its virtual twin lacks."""
    known = {f"network.{key}" for key in parts.choices("network")[twin] if key != "_target_"}
    parsed = OverridesParser.create().parse_overrides(overrides)
    keys = {override.key_or_group for override in parsed}
    return any(key == "network" or key.startswith("network.") for key in keys - known)
