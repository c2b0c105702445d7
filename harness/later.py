"""Keys of the configuration that came later: a run from before them is one with these values."""

from typing import Any

KEYS: dict[tuple[str, ...], Any] = {  # and what was so before them
    ("watch",): None,
    ("optimizer", "beta_2"): 0.999,
}


def without(config: dict[str, Any]) -> dict[str, Any]:
    """`config` as it was written before those keys, where it says what was so then."""
    for keys, before in KEYS.items():
        config = _without(config, keys, before)
    return config


def _without(config: dict[str, Any], keys: tuple[str, ...], before: Any) -> dict[str, Any]:
    first, *rest = keys
    inner = config.get(first)
    if rest and isinstance(inner, dict):
        return config | {first: _without(inner, tuple(rest), before)}
    if rest:
        return config
    return config if inner != before else {k: v for k, v in config.items() if k != first}
