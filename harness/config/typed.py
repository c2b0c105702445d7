"""Values of a section of the configuration against the types that its class declares for them."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from hydra._internal.utils import _locate

MOST_WHOLE = 2**53  # what a float of JSON holds exactly
PLAIN = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    NoneType: "null",
}

MEASURED = re.compile(r"([-+]?[0-9.]*[0-9](?:e[-+]?[0-9]+)?) ?(%|[a-z/]+)")  # with a unit
SWITCHED = {"1": True, "yes": True, "on": True, "0": False, "no": False, "off": False}


class BadSetting(ValueError):
    """A setting the user has to change; the message names key, value and what is allowed."""


def require(good: bool, key: str, value: object, allowed: str) -> None:
    """BadSetting unless it is `good`; a class is told by its name."""
    if not good:
        got = value.__name__ if isinstance(value, type) else repr(value)
        raise BadSetting(f"{key} must be {allowed}, got {got}")


@contextmanager
def of_part(part: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise `errors` as BadSetting, with the part's name in front."""
    try:
        yield
    except errors as error:
        raise BadSetting(f"{part}: {error}") from error


class Must(NamedTuple):
    """Beside a type, in Annotated: which of its values may be."""

    said: str
    holds: Callable[[Any], bool]


def mistyped(section: Mapping[str, Any], prefix: str = "") -> str:
    """Describe the first value that is not of its declared type; "" if all are.

    `section` has a `_target_`, and may hold others. What its class does not declare is not looked
    at: that is refused when it is built.
    """
    return unfit(section, _declared(section["_target_"]), prefix)


def unfit(section: Mapping[str, Any], kinds: Mapping[str, Any], prefix: str = "") -> str:
    """Describe the first value that is not of the type in `kinds`; "" if all are."""
    for key, value in section.items():
        if key.startswith("_") or key not in kinds:
            continue
        if not _fits(value, kinds[key]):
            instead = _instead(key, value, kinds[key])
            return f"{prefix}{key} must be {_told(kinds[key])}, got {value!r}{instead}"
        if is_section(value) and (wrong := mistyped(value, f"{prefix}{key}.")):
            return wrong
    return ""


def _instead(key: str, value: Any, kind: Any) -> str:
    """Say what to write for a value that a person reads otherwise; "" where nobody would."""
    told = str(value).lower()
    meant: list[object] = []
    if isinstance(value, str) and (found := MEASURED.fullmatch(told)):
        number, unit = float(found[1]), found[2]
        if unit == "%":
            meant = [number / 100]
        elif unit.startswith(key.rpartition("_")[2].lower()):
            meant = [number]
    elif isinstance(value, float) and value.is_integer():
        meant = [int(value)]
    meant += [SWITCHED[told]] if told in SWITCHED else []
    fit = [each for each in meant if _fits(each, kind)]
    return (
        f"; write {str(fit[0]).lower() if isinstance(fit[0], bool) else f'{fit[0]:g}'}"
        if fit
        else ""
    )


def as_declared(value: Any, kind: Any) -> Any:
    """Return `value`, as a float where `kind` is one: torch takes no integer beyond 64 bits."""
    return float(value) if type(value) is int and _is_float(kind) else value


def _is_float(kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(map(_is_float, arguments))
    return kind is float or (origin is Annotated and _is_float(arguments[0]))


def is_section(value: Any) -> bool:
    """True if `value` is a section with a `_target_`."""
    return isinstance(value, Mapping) and isinstance(value.get("_target_"), str)


def located(path: str) -> Any:
    """Import the object at a dotted path; ImportError, in one line, if there is none."""
    try:
        return _locate(path)
    except Exception as error:  # of importing whatever lies on the way
        said = _absent(path) or str(error.__cause__ or error).strip() or type(error).__name__
        raise ImportError(f"{path}: {said.splitlines()[0]}") from error


def _absent(path: str) -> str:
    """Say which name of a dotted path its module lacks; "" if it has it, or is not there."""
    module, _, name = path.rpartition(".")
    there = sys.modules.get(module)
    if there is None or hasattr(there, name):
        return ""
    near = get_close_matches(name, [each for each in dir(there) if each[:1] != "_"], 1)
    return f"there is no {name!r} in it{''.join(f'; nearest: {each}' for each in near)}"


def _declared(target: str) -> dict[str, Any]:
    """Types of the arguments of what `target` names."""
    made = located(target)
    called = made.__init__ if inspect.isclass(made) else made
    try:
        return get_type_hints(called)
    except (TypeError, NameError):  # it is compiled, or declares none
        return {}


def _fits(value: Any, kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is Annotated:
        return _fits(value, arguments[0]) and bool(arguments[1].holds(value))
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    if kind in PLAIN:
        return _is_plain(value, kind)
    if kind is Any:
        return True
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(v, arguments[1]) for v in value.values())
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list) and _fit_all(value, arguments)
    return is_section(value)


def _fit_all(values: Sequence[Any], kinds: Sequence[Any]) -> bool:
    """Items of a sequence: all of one type, or each of its own."""
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        return all(_fits(value, kinds[0]) for value in values)
    return len(values) == len(kinds) and all(map(_fits, values, kinds))


def _is_plain(value: Any, kind: Any) -> bool:
    if kind in (bool, str, NoneType) or isinstance(value, bool):
        return type(value) is kind
    if kind is int:
        return isinstance(value, int) and abs(value) <= MOST_WHOLE
    return isinstance(value, (int, float)) and abs(value) < 1e300 and isfinite(value)


def _told(kind: Any) -> str:
    """Say in words which values a type takes."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_told, arguments)))
    if origin is Annotated:
        return str(arguments[1].said)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is not None and issubclass(origin, Mapping):
        return f"a mapping of names to {_told(arguments[1])}"
    if origin is not None and issubclass(origin, Sequence):
        return f"a list, each {_told(arguments[0])}"
    return "a section with _target_"


def leaves(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested mappings, with the keys that lead to it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*keys, str(key)))
    else:
        yield keys, value


def class_paths(value: Any) -> set[str]:
    """Return the dotted paths of all `_target_` in nested mappings."""
    named = (found for keys, found in leaves(value) if keys[-1:] == ("_target_",))
    return {each for each in named if isinstance(each, str)}
