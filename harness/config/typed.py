"""Checks of configuration values against the types that a section's class declares."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from harness.records.printable import PrintableError

STDLIB = {"builtins", *sys.stdlib_module_names}
MOST_SHOWN = 200  # most characters of a value in a message
MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 4096  # NAME_MAX and PATH_MAX of Linux
MOST_WHOLE = 2**53  # largest integers that JSON's floats keep exact
MOST_WORKERS = 100_000
PLAIN = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    NoneType: "null",
}

MEASURED = re.compile(
    r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?) ?(%|[A-Za-zµ/]*)", re.ASCII
)  # a number and its unit
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0}
SECONDS |= {"sec": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}
THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
BITS = {f"{k}{unit}": n for k, n in THOUSANDS.items() for unit in ("bit/s", "bit", "bps", "b/s")}
BITS |= {f"{k}B/s": 8 * n for k, n in THOUSANDS.items()}
BYTES = {f"{k}{unit}": n for k, n in THOUSANDS.items() for unit in ("B", "byte", "bytes")}
BINARY = {f"{k}iB": 1024.0**n for n, k in enumerate(THOUSANDS) if k}
UNITS: dict[
    str, tuple[str, float, dict[str, float]]
] = {  # by suffix of a key: its unit, accepted others
    "s": ("s", 1.0, SECONDS),
    "ms": ("ms", 1e-3, SECONDS),
    "us": ("us", 1e-6, SECONDS),
    "ns": ("ns", 1e-9, SECONDS),
    "mbit": ("Mbit/s", 1e6, THOUSANDS | BITS),
    "bytes": ("bytes", 1.0, THOUSANDS | BYTES | BINARY),
    "mb": ("MiB", 2.0**20, BINARY | {f"{k[0]}B": size for k, size in BINARY.items()}),
}
OTHER_UNITS = dict.fromkeys(("kbit", "gbit", "mbps", "gbps", "kb", "gb", "pct", "percent"))
UNITLESS = ("", 1.0, THOUSANDS | {"%": 0.01})
SWITCHED = {"1": True, "yes": True, "on": True, "0": False, "no": False, "off": False}


class BadSetting(PrintableError, ValueError):
    """Error for a setting the user has to change. The message has key, value and allowed values."""


def require(good: bool, key: str, value: object, allowed: str) -> None:
    """Raise BadSetting, with the key, the allowed values and the value, unless `good`."""
    if not good:
        raise BadSetting(f"{key} must be {allowed}, got {shown(value)}")


@contextmanager
def of_part(part: str, *errors: type[Exception]) -> Iterator[None]:
    """Context manager: raise `errors` as BadSetting, with the part's name in front."""
    try:
        yield
    except errors as error:
        raise BadSetting(f"{part}: {error}") from error


def is_text(value: str) -> bool:
    """Return True if `value` is printable and shorter than the longest path of Linux."""
    return value.isprintable() and len(os.fsencode(value)) < MOST_PATH_BYTES


def is_path(text: str, name_bytes: int = MOST_NAME_BYTES) -> bool:
    """Return True if `text` is printable and Linux allows its length and those of its names."""
    return (
        is_text(text) and 0 < max(len(os.fsencode(name)) for name in text.split("/")) <= name_bytes
    )


def shown(value: object) -> str:
    """Return the repr of `value` (a class by its name), with the middle of a long one cut out."""
    told = value.__name__ if isinstance(value, type) else repr(value)
    return told if len(told) <= MOST_SHOWN else f"{told[: MOST_SHOWN - 20]}...{told[-10:]}"


class Must(NamedTuple):
    """Restriction on a type, for use in Annotated: its text, and the test of a value."""

    said: str
    holds: Callable[[Any], bool]


def mistyped(section: Mapping[str, Any], prefix: str = "") -> str:
    """Return a message on the first value that is not of its declared type; "" if all are.

    `section` has a `_target_` and may contain other sections. Keys that its class does not declare
    are ignored: building the object refuses them.
    """
    made = located(section["_target_"])
    return unfit(section, hints(made.__init__ if inspect.isclass(made) else made), prefix)


def unfit(section: Mapping[str, Any], kinds: Mapping[str, Any], prefix: str = "") -> str:
    """Return a message on the first value that is not of its type in `kinds`; "" if all are."""
    for key, value in section.items():
        if key.startswith("_") or key not in kinds:
            continue
        if not _fits(value, kinds[key]):
            instead = _instead(key, value, kinds[key])
            told = _told(kinds[key])
            if isinstance(value, str) and not is_text(value) and "bytes" not in told:
                told += " (a text has at most 4095 bytes and no control characters)"
            return f"{prefix}{key} must be {told}, got {shown(value)}{instead}"
        if is_section(value) and (wrong := mistyped(value, f"{prefix}{key}.")):
            return wrong
    return ""


def _instead(key: str, value: Any, kind: Any) -> str:
    """Return a hint for a value such as "10 ms" that a person would understand; else ""."""
    unit, size, others = UNITS.get(key.rpartition("_")[2], UNITLESS)
    meant = _meant(value, size, others)
    fit = [each for each in (meant, _whole(meant)) if meant is not None and _fits(each, kind)]
    if fit:
        return f"; write {written(fit[-1])}"
    has_unit = isinstance(value, str) and MEASURED.fullmatch(value)
    return f"; write a number of {unit}" if unit and has_unit else ""


def without_unit(key: str) -> str:
    """Return the name of a key without a unit at its end."""
    stem, _, unit = key.rpartition("_")
    return stem if stem and unit.lower() in UNITS | OTHER_UNITS else key


def _meant(value: Any, size: float, others: Mapping[str, float]) -> Any:
    """Return the value that a person meant, converted by unit sizes; None if it is not known.

    `size` is the size of the result's unit; `others` has the sizes of accepted units.
    """
    if isinstance(value, list):
        numbers = (int, float)
        meant = [v if isinstance(v, numbers) else _meant(v, size, others) for v in value]
        return None if None in meant else meant
    if (text := str(value).lower()) in SWITCHED:
        return SWITCHED[text]
    if not isinstance(value, str) or not (parts := MEASURED.fullmatch(value)):
        return value if isinstance(value, (int, float)) else None
    number, unit = parts.groups()
    alike = {name.lower(): each for name, each in reversed(list(others.items()))}
    found = others.get(unit, alike.get(unit.lower())) if unit else size
    return None if found is None else float(f"{float(number) * found / size:.12g}")


def _whole(value: Any) -> Any:
    """Return `value`, a float without a fraction as int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written(value: Any) -> str:
    """Return a value as it is written in a command line."""
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(_whole(value))


def as_declared(value: Any, kind: Any) -> Any:
    """Return `value`, an int as float if `kind` is float: torch takes no int beyond 64 bits."""
    return float(value) if type(value) is int and _is_float(kind) else value


def _is_float(kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(map(_is_float, arguments))
    return kind is float or (origin is Annotated and _is_float(arguments[0]))


def is_section(value: Any) -> bool:
    """Return True if `value` is a section with a `_target_`."""
    return isinstance(value, Mapping) and isinstance(value.get("_target_"), str)


def is_of(made: Any, kind: Any) -> bool:
    """Return True if class `made`, or the declared result of function `made`, is a `kind`.

    A class fits a protocol if it derives from it or has all of its methods. Nothing is called.
    """
    made = made if inspect.isclass(made) else hints(made).get("return")
    if kind in getattr(made, "__mro__", ()):
        return True
    methods = [name for name in methods_of(kind) if getattr(kind, "_is_protocol", False)]
    return bool(methods) and all(callable(getattr(made, name, None)) for name in methods)


def methods_of(kind: Any) -> list[str]:
    """Return the names of the public methods that a class defines itself."""
    return [name for name, value in vars(kind).items() if name[:1] != "_" and callable(value)]


def is_pythons_own(made: Any) -> bool:
    """Return True for a class or function of the standard library, which is no part of a run."""
    return str(getattr(made, "__module__", None) or "builtins").partition(".")[0] in STDLIB


def forbidden(section: Any, prefix: str = "") -> str:
    """Return a message on the first nested section that must not be instantiated; "" if none.

    A nested section must name a class outside of the standard library.
    """
    items: Any = section.items() if isinstance(section, Mapping) else enumerate(section)
    for key, value in items:
        place = f"{prefix}{key}"
        if str(key)[:1] == "_" and key != "_target_":
            return f"{place} is no key of a section; its keys are its class's arguments"
        if not isinstance(value, (Mapping, list)):
            continue
        if isinstance(value, Mapping) and is_section(value):
            made = located(value["_target_"])
            if not inspect.isclass(made) or is_pythons_own(made):
                wanted = "a class, and none of Python's own"
                return f"{place}._target_ must be {wanted}, got {value['_target_']!r}"
        if said := forbidden(value, f"{place}."):
            return said
    return ""


def located(path: str) -> Any:
    """Import the object at a dotted path. Raise ImportError with a one-line reason if it fails."""
    from hydra._internal.utils import _locate  # takes 0.3 s, so --help avoids it

    try:
        return _locate(path)
    except Exception as error:  # importing modules on the path may raise anything
        said = _absent(path) or str(error.__cause__ or error).strip() or type(error).__name__
        raise ImportError(f"{path}: {said.splitlines()[0]}") from error


def _absent(path: str) -> str:
    """Return a message on the name that an imported module lacks; "" if that is not the reason."""
    module, _, name = path.rpartition(".")
    there = sys.modules.get(module)
    if there is None or hasattr(there, name):
        return ""
    near = get_close_matches(name, [each for each in dir(there) if each[:1] != "_"], 1)
    return f"there is no {name!r} in it{''.join(f'; nearest: {each}' for each in near)}"


def hints(called: Any) -> dict[str, Any]:
    """Return the types that a function declares; {} if it is compiled or declares none."""
    try:
        return get_type_hints(called)
    except (TypeError, NameError):
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
        is_plain = isinstance(value, Mapping) and "_target_" not in value
        return is_plain and all(_fits(v, arguments[1]) for v in value.values())
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list) and _fit_all(value, arguments)
    return is_section(value) and is_of(located(value["_target_"]), kind)


def _fit_all(values: Sequence[Any], kinds: Sequence[Any]) -> bool:
    """Return True if the items fit: all of one type, or each of its own."""
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        return all(_fits(value, kinds[0]) for value in values)
    return len(values) == len(kinds) and all(map(_fits, values, kinds))


def _is_plain(value: Any, kind: Any) -> bool:
    if kind in (bool, str, NoneType) or isinstance(value, bool):
        return type(value) is kind and (kind is not str or is_text(value))
    if kind is int:
        return isinstance(value, int) and abs(value) <= MOST_WHOLE
    return isinstance(value, (int, float)) and abs(value) < 1e300 and isfinite(value)


def _told(kind: Any) -> str:
    """Describe the values that a type accepts, in words."""
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
    return f"a section with _target_ of a {getattr(kind, '__name__', kind)}"


def leaves(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (keys, value) for each leaf of nested mappings; `keys` is the path to it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*keys, str(key)))
    else:
        yield keys, value


def class_paths(value: Any) -> set[str]:
    """Return the dotted paths of all `_target_` in nested mappings."""
    named = (found for keys, found in leaves(value) if keys[-1:] == ("_target_",))
    return {each for each in named if isinstance(each, str)}
