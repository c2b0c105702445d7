"""Command `doctor --contract GROUP=CHOICE [GROUP.KEY=VALUE]`: test parts by their kind's laws.

The groups are compressor, controller, profile and activations.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from harness.config.scales import composed
from harness.config.settings import BadSetting
from harness.contract import activations, compressors, controllers, profiles
from harness.contract.laws import Law

LAWS: dict[str, tuple[Law, ...]] = {
    "compressor": compressors.LAWS,
    "controller": controllers.LAWS,
    "profile": profiles.LAWS,
    "activations": activations.LAWS,
}


def main(overrides: list[str]) -> int:
    """Print if each law of each part holds. Return 1 if one is broken; BadSetting without part."""
    groups = [group for group in LAWS if any(_group(override) == group for override in overrides)]
    if not groups:
        raise BadSetting(f"name a part by {', '.join(f'{group}=CHOICE' for group in LAWS)}")
    broken = [law for group in groups for law in _tried(group, overrides)]
    return 1 if any(broken) else 0


def _tried(group: str, overrides: Sequence[str]) -> Iterator[bool]:
    """Test the part of `group` by each law, print the result, and yield True if it is broken."""

    @cache
    def built(*more: str) -> Any:
        return composed([*overrides, *more])[0].build(group)

    def make(*more: str) -> Any:
        return deepcopy(built(*more))  # threads may copy at the same time, but not build

    part = make()
    print(f"{group} {type(part).__module__}.{type(part).__qualname__}")
    for law in LAWS[group]:
        seen = law.broken(make)
        print(f"  {'does not hold' if seen else 'holds':13}  {law.said}", flush=True)
        if seen:
            print(f"{'':17}{seen}", flush=True)
        yield bool(seen)


def _group(override: str) -> str:
    """Return the group that an override chooses or changes."""
    return override.lstrip("+~").partition("=")[0].partition(".")[0]
