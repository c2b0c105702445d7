"""Virtual time in place of packets: at scale=laptop, where a machine forbids namespaces.

A network that was asked for by name, or that the command sweeps over, is never replaced.
"""

from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config import parts
from harness.config.settings import BadSetting, Settings

SCALE = "laptop"


class Fallback(NamedTuple):
    """A choice of `network`."""

    network: str
    in_place_of: str  # the choice it replaces, and what forbids that


def fallback_of(settings: Settings, hydra: Any) -> Fallback | None:
    """Virtual network to replace that of `settings`; None where nothing is to be replaced."""
    if settings["scale.name"] != SCALE:
        return None
    try:
        network = settings.build("network")
    except BadSetting:
        return None  # which the check will tell
    twin = getattr(network, "twin", "")
    if not twin or _insists(list(hydra.overrides.task), twin) or not (refusal := network.refusal()):
        return None
    return Fallback(twin, f"{hydra.runtime.choices.network}: {refusal}")


def _insists(overrides: list[str], twin: str) -> bool:
    """True if an override chooses the network, or sets what only real packets have."""
    known = {f"network.{key}" for key in parts.choices("network")[twin] if key != "_target_"}
    parsed = OverridesParser.create().parse_overrides(overrides)
    keys = {override.key_or_group for override in parsed}
    return any(key == "network" or key.startswith("network.") for key in keys - known)
