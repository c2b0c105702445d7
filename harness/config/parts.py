"""The parts that a configuration names, in one form, and the choices made of them.

A part is a section with `_target_`. In its one form it has every field of its class, so that what
is left out and what is said again are equal, and none that the run decides for all of its parts.
"""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any

from harness.config import search_path
from harness.config.typed import located

CONTEXT = ("seed", "profile", "workers", "workers_per_node")  # of the run, not of a part
OURS = ("compressors", "controllers", "profiles", "harness")
DEFAULTS = {
    "compressor": "dense",
    "controller": "fixed",
    "activations": "dense",
    "parallel": "data",
}

Fields = dict[str, Any]


def canonical(section: Mapping[str, Any], run: Mapping[str, Any]) -> Fields:
    """A section with all fields of its class, numbers as floats, without what is the run's own."""
    target = section.get("_target_")
    known = _defaults(str(target)) if target else {}
    told = {str(key): plain(value, run) for key, value in section.items()}
    own = {key: value for key, value in told.items() if not _is_of_the_run(key, value, run)}
    return {key: value for key, value in known.items() if key not in CONTEXT} | own


def _is_of_the_run(key: str, value: Any, run: Mapping[str, Any]) -> bool:
    if key not in CONTEXT:
        return False
    return value == f"${{{key}}}" or (key in run and value == plain(run[key], run))


def plain(value: Any, run: Mapping[str, Any]) -> Any:
    """Convert a value to plain YAML form, equal for values that mean the same."""
    if isinstance(value, Mapping):
        if "_target_" in value:
            return canonical(value, run)
        return {str(key): plain(each, run) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, run) for each in value]
    if f"{type(value).__module__}.{type(value).__name__}" == "torch.dtype":
        return str(value).removeprefix("torch.")
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return plain({"_target_": f"{kind.__module__}.{kind.__qualname__}", **own}, run)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, (bool, float, str)) or value is None:
        return value
    kind = type(value)  # of an object that its class makes without arguments, or a path
    made = f"{kind.__module__}.{kind.__qualname__}"
    return {"_target_": made} if made.partition(".")[0] in OURS else str(value)


@cache
def _defaults(target: str) -> Fields:
    """Fields of a class that need not be said; none of one that is not here."""
    kind = _class(target)
    if kind is None:
        return {}
    if is_dataclass(kind):
        made = {
            each.name: each.default if each.default_factory is MISSING else each.default_factory()
            for each in fields(kind)
            if each.init
        }
        return {key: plain(value, {}) for key, value in made.items() if value is not MISSING}
    told = inspect.signature(kind).parameters.values()
    return {each.name: plain(each.default, {}) for each in told if each.default is not each.empty}


@cache
def _class(target: str) -> Any:
    """Class of ours that `target` names; None for any other, or one that is gone."""
    if target.partition(".")[0] not in OURS:
        return None
    try:
        return located(target)
    except (ImportError, AttributeError, ValueError):
        return None


def has_level(target: str) -> bool:
    """True if a compressor sends less at a lower density, as `compressors.base` says."""
    kind = _compressor(target)
    return kind is None or kind.has_level


def keeps_largest(target: str) -> bool:
    """True if a compression of activations sends the largest of every sample, or all."""
    kind = _derived(target, "compressors.activations.base.Activations")
    return kind is not None and kind.keeps_largest


def replaces(target: str) -> tuple[str, ...]:
    """Settings whose work a compressor does itself."""
    kind = _compressor(target)
    return () if kind is None else kind.replaces


def _compressor(target: str) -> Any:
    return _derived(target, "compressors.base.Compressor")


def _derived(target: str, base: str) -> Any:
    """Class of ours that `target` names, if it derives from `base`; None for any other."""
    kind = _class(target)
    return kind if located(base) in getattr(kind, "__mro__", ()) else None


@cache
def choices(group: str) -> dict[str, Fields]:
    """Every choice of a group of parts, by name."""
    return {name: canonical(_section(group, name), {}) for name in _files(group)}


def keys_of(group: str, name: str) -> tuple[str, ...]:
    """Return the keys that the yaml of one choice sets."""
    file = search_path.choices(group).get(name)
    values = search_path.values(file) if file else None
    return tuple(values) if isinstance(values, Mapping) else ()


@cache
def _files(group: str) -> dict[str, Any]:
    found = search_path.choices(group)
    return {name: search_path.values(file) or {} for name, file in found.items()}


def _section(group: str, name: str) -> Fields:
    """Section of `group` in a choice, also in a choice that sets more than its own group."""
    told = _files(group)[name]
    return dict(told if "_target_" in told else told.get(group, told))


@cache
def follows_seed(group: str, target: str) -> bool:
    """True if every choice of this class has the run's seed, and so none of its own."""
    told = [_section(group, name) for name in _files(group)]
    return {each.get("seed") for each in told if each.get("_target_") == target} == {"${seed}"}


def beside(group: str, name: str) -> Fields:
    """Settings of a choice outside its own group."""
    told = _files(group)[name]
    return {} if "_target_" in told else {key: told[key] for key in told if key != group}


def named(group: str, section: Fields) -> tuple[str, Fields]:
    """The choice of a group that is nearest to a section, and its fields; else its class's."""
    target = str(section.get("_target_"))
    made = {
        name: choice for name, choice in choices(group).items() if choice.get("_target_") == target
    }
    if not made:
        return target, canonical({"_target_": target}, {})
    apart = {
        name: sum(section.get(key) != choice.get(key) for key in {*section, *choice} - {"density"})
        for name, choice in made.items()
    }
    name = min(made, key=lambda each: (apart[each], each))
    return name, made[name]


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Method settings that every choice of the group `method` composes to, by name."""
    return {name: _preset(name) for name in _files("method")}


def _preset(name: str) -> dict[str, Any]:
    told = dict(_files("method")[name])
    parts = {group: _section(group, choice) for group, choice in DEFAULTS.items()}
    for entry in told.pop("defaults", []):
        if isinstance(entry, str):
            parts = parts if entry == "_self_" else _preset(entry)
            continue
        [(key, choice)] = entry.items()
        group = key.removeprefix("override /")
        parts |= {group: _section(group, choice)} | beside(group, choice)
    for key, value in told.items():
        parts[key] = parts.get(key, {}) | value if isinstance(value, dict) else value
    return parts
