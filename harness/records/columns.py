"""Columns of tables, declared in row classes: a field `Annotated[type, Column(...)]` each."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from controllers.base import Column

UNITS = {"_s": "s", "_ms": "ms", "_bytes": "bytes", "_mbit": "Mbit/s"}  # ends of names


@cache
def of(row: type) -> Mapping[str, Column]:
    """Return every field of a row class, a NamedTuple or dataclass, by name, keys first."""
    hints = get_type_hints(row, include_extras=True).items()
    found = {name: next((each for each in get_args(hint) if isinstance(each, Column)), Column())
             for name, hint in hints}  # fmt: skip
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: not item[1].key)))


def recorded(row: type) -> dict[str, type]:
    """Return the types of the fields of `row` that csv files have, by name and in order."""
    types = get_type_hints(row)
    return {name: types[name] for name, column in of(row).items() if column.recorded}


def required(row: Any) -> list[str]:
    """Return columns that every version's csv has: those without a default."""
    optional = getattr(row, "_field_defaults", {})
    if is_dataclass(row):
        optional = {each.name for each in fields(row) if each.default is not MISSING}
    return [name for name in recorded(row) if name not in optional]


def averaged(row: type) -> list[str]:
    """Return columns whose mean is a number of the run."""
    return [name for name, column in of(row).items() if column.averaged or column.shown]


def shown(row: type) -> dict[str, Column]:
    """Return columns of the tables that compare methods."""
    return {name: column for name, column in of(row).items() if column.shown}


def values(row: Any, of_class: type) -> dict[str, Any]:
    """Return values of `row` in the columns of a class that it inherits from, by name."""
    return {name: getattr(row, name) for name in of(of_class)}


@cache
def unit(name: str) -> str:
    """Return the unit at the end of a column's name, or ""."""
    return next((told for end, told in UNITS.items() if name.endswith(end)), "")


def words(name: str) -> str:
    """Return the words of a column's name, without its unit."""
    end = next((end for end in UNITS if name.endswith(end)), "")
    return name.removesuffix(end).replace("_", " ")
