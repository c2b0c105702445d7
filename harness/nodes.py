"""How many nodes the network of a run has."""

from typing import Any

from hydra.utils import get_object

from harness.settings import Settings


def count(settings: Settings) -> int:
    """Those of the workers, and behind them one for each server."""
    return of(settings.config)


def of(config: dict[str, Any]) -> int:
    """The same, of a configuration as it was saved; earlier ones do not say what was parallel."""
    own = config["workers"] // config.get("workers_per_node", 1)
    kind = config.get("parallel", {}).get("_target_")
    return own + (get_object(kind).servers if kind else 0)
