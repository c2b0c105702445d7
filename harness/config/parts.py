"""Normal form of the parts in a configuration, and the choices of each group in that form.

A part is a section with `_target_`. Its normal form has all fields of its class, so sections that
build equal objects are equal. It leaves out fields that the run sets for all of its parts.
"""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any

from harness.config import search_path
from harness.config.typed import located

CONTEXT = ("seed", "profile", "workers", "workers_per_node")  # set by the run for all of its parts
OURS = ("compressors", "controllers", "profiles", "harness")
DEFAULTS = {
    "compressor": "dense",
    "controller": "fixed",
    "activations": "dense",
    "parallel": "data",
}

Fields = dict[str, Any]


def canonical(section: Mapping[str, Any], run: Mapping[str, Any]) -> Fields:
    """Return `section` with all fields of its class, ints as floats, without the run's fields."""
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
    """Return `value` as plain YAML data; values with the same meaning give equal results."""
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
    kind = type(value)  # an object built without arguments, or a path
    made = f"{kind.__module__}.{kind.__qualname__}"
    return {"_target_": made} if made.partition(".")[0] in OURS else str(value)


@cache
def _defaults(target: str) -> Fields:
    """Return the class's fields that have defaults; {} if it is not ours or cannot be imported."""
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
    """Return our class named by `target`; None if it is not ours or cannot be imported."""
    if target.partition(".")[0] not in OURS:
        return None
    try:
        return located(target)
    except (ImportError, AttributeError, ValueError):
        return None


def has_level(target: str) -> bool:
    """Return True if the compressor sends less at a lower density, or is not known here."""
    kind = _compressor(target)
    return kind is None or kind.has_level


def keeps_largest(target: str) -> bool:
    """Return True if the activation compressor keeps the largest entries of each sample, or all."""
    kind = _derived(target, "compressors.activations.base.Activations")
    return kind is not None and kind.keeps_largest


def replaces(target: str) -> tuple[str, ...]:
    """Return the settings whose work the compressor does itself."""
    kind = _compressor(target)
    return () if kind is None else kind.replaces


def _compressor(target: str) -> Any:
    return _derived(target, "compressors.base.Compressor")


def _derived(target: str, base: str) -> Any:
    """Return our class named by `target` if it derives from `base`, else None."""
    kind = _class(target)
    return kind if located(base) in getattr(kind, "__mro__", ()) else None


@cache
def choices(group: str) -> dict[str, Fields]:
    """Return the choices of a group by name, each as a section in normal form."""
    return {name: canonical(_section(group, name), {}) for name in _files(group)}


def keys_of(group: str, name: str) -> tuple[str, ...]:
    """Return the top-level keys in the yaml of a choice; () if it has none."""
    file = search_path.choices(group).get(name)
    values = search_path.values(file) if file else None
    return tuple(values) if isinstance(values, Mapping) else ()


@cache
def _files(group: str) -> dict[str, Any]:
    found = search_path.choices(group)
    return {name: search_path.values(file) or {} for name, file in found.items()}


def _section(group: str, name: str) -> Fields:
    """Return the section of `group` in a choice, even if the choice also sets other groups."""
    told = _files(group)[name]
    return dict(told if "_target_" in told else told.get(group, told))


@cache
def follows_seed(group: str, target: str) -> bool:
    """Return True if all choices of this class take the run's seed instead of one of their own."""
    told = [_section(group, name) for name in _files(group)]
    return {each.get("seed") for each in told if each.get("_target_") == target} == {"${seed}"}


def beside(group: str, name: str) -> Fields:
    """Return the settings that a choice makes outside of its own group."""
    told = _files(group)[name]
    return {} if "_target_" in told else {key: told[key] for key in told if key != group}


def named(group: str, section: Fields) -> tuple[str, Fields]:
    """Return (name, fields) of the choice nearest to `section`, else the class and its defaults."""
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
    """Return the composed settings of each choice of the group `method`, by name."""
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
