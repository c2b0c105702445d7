"""How many nodes the network of a run has."""

from harness.settings import Settings


def count(settings: Settings) -> int:
    """Those of the workers, and behind them one for each server."""
    own = settings["workers"] // settings["workers_per_node"]
    return own + settings.build("parallel").servers
