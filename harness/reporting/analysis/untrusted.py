"""Reads and checks the files of run directories, which may be foreign or damaged.

No size, shape or type is trusted. Every problem becomes one line, so that the run is left out of a
report and the others are not. `load` and `measurable` use this module.
"""

import io
import stat
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import pandas as pd
import yaml

from harness.config import plain_yaml
from harness.config.typed import MOST_WHOLE
from harness.records import columns, manifest, printable, run_directory, status
from harness.records.printable import PrintableError

MOST_JSON_BYTES, MOST_TABLE_BYTES = 1 << 26, 1 << 32
MOST_NAME = 200  # bytes of a folder's name: file systems take 255, and figures add a suffix
SECTIONS = ["method", "model", "dataset", "compressor", "controller", "activations", "parallel"]
SECTIONS += ["profile", "network", "optimizer", "emulation", "target"]
MOST_SAID = 200  # characters shown of a bad value
MOST_NUMBER = 1e15  # seconds (30 million years), bytes, Mbit/s: no run measures more
CLOCKS = ("time_s", "start_s", "end_s")  # columns that every row needs
UNBOUNDED = ("loss", "value", "residual_norm")
MINUS_1 = ("fragment", "bucket")  # columns where -1 stands for none
OF_SUMMARY = ("valid", "grade", "late_at_most_s", "late_at_most_share")
FILES = dict.fromkeys(OF_SUMMARY, "summary.json")  # files of columns that are not in config.yaml
KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class Damaged(PrintableError, ValueError):
    """Raised if a file of a run directory has bad contents; the message names file and cause."""


def config(run: Path) -> dict[str, Any]:
    """Return config.yaml of `run` as plain values; {} if the file is missing.

    Raise Damaged if it is too large or too deep, has aliases (which may expand without end), is no
    mapping, has a section that is no mapping, or an `experiment` that cannot name a folder.
    """
    file = run / "config.yaml"
    if not file.exists():
        return {}
    if told := strange(run):
        raise Damaged(told)
    try:
        found = plain_yaml.from_file(file, aliases=False)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise Damaged(f"config.yaml is damaged: {_first_line(error)}") from error
    if not isinstance(found, dict) or not is_folder_name(name := found.get("experiment")):
        said = repr(name)[:MOST_NAME] if isinstance(found, dict) else "no settings"
        raise Damaged(f"config.yaml is damaged: experiment must name a folder, got {said}")
    for key in SECTIONS:
        if not isinstance(found.get(key, {}), dict):
            raise Damaged(f"config.yaml is damaged: {key} must be a section")
    return dict(_with_new_places(printable.values(found)))


def _with_new_places(value: Any) -> Any:
    """Return `value` with the present paths of classes that have moved since the run."""
    if isinstance(value, dict):
        return {
            key: run_directory.place_now(each) if key == "_target_" else _with_new_places(each)
            for key, each in value.items()
        }
    return [_with_new_places(each) for each in value] if isinstance(value, list) else value


def is_folder_name(name: Any) -> bool:
    """Return True if `name` is safe as the name of a direct subfolder."""
    return (
        isinstance(name, str)
        and not name.startswith(".")
        and name.isprintable()
        and 0 < len(name.encode()) <= MOST_NAME
        and not set(name) & set("/\\")
    )


def strange(run: Path) -> str:
    """Return why the first file of `run` that is not regular, or too large, is refused; else "".

    No file of such a run may be opened: a link may lead to any file, and a device never ends.
    """
    for name in ("status.json", *manifest.NAMES):
        try:
            found = (run / name).lstat()
        except OSError:
            continue
        most = MOST_JSON_BYTES if name.endswith(".json") else MOST_TABLE_BYTES
        if not stat.S_ISREG(found.st_mode):
            return f"{name} is damaged: it is a link, a folder or a device, and no file"
        if found.st_size > most:
            return f"{name} is damaged: {found.st_size} bytes, at most {most} are read"
    return ""


def damage(run: Path, state: str) -> str:
    """Return what is wrong with the first damaged file of a run in `state`; "" if none is."""
    for name in ("status.json", "summary.json"):
        if (run / name).exists() and run_directory.read_json(run / name) is None:
            return f"{name} is damaged"
    if state in status.JUDGED:
        return manifest.damage(run, run_directory.read_json(run / "status.json") or {})
    return ""


def check_tables(run: Path) -> None:
    """Raise Damaged for the first table of `run` that is unreadable or lacks a required header.

    Every run has evaluations.csv and links.csv, at least with their headers.
    """
    for name in manifest.TABLES:
        if name in ("evaluations.csv", "links.csv") and not (run / name).stat().st_size:
            raise Damaged(f"{name} is damaged: it is empty")
        table(run, name)


def table(run: Path, name: str) -> pd.DataFrame:
    """Return table `name` of the run directory `run`, without a torn last line; empty if missing.

    Raise Damaged if a required column is missing, or a value is of another type or out of range.
    """
    known: dict[str, Any] = run_directory.ALL_TABLES
    row = known[name]
    types: dict[str, Any] = columns.recorded(row)
    path = run / name
    try:
        text = path.read_text() if path.exists() else ""
        whole = printable.lines(text[: text.rfind("\n") + 1])
        if not whole:
            return pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in types.items()})
        found = pd.read_csv(
            io.StringIO(_renamed(whole)), usecols=lambda name: name in types, dtype=types
        )
    except (OSError, ValueError, OverflowError, TypeError) as error:
        raise Damaged(f"{name} is damaged: {_first_line(error)}") from error
    if missing := [column for column in columns.required(row) if column not in found]:
        raise Damaged(f"{name} is damaged: it has no column {missing[0]}")
    for column in found:
        if wrong := _out_of_range(found[column]):
            raise Damaged(f"{name} is damaged: {column} must be {wrong}")
    texts = {column: "" for column, kind in types.items() if kind is str and column in found}
    return found.fillna(texts).reindex(columns=list(types))  # older runs have fewer columns


def _out_of_range(values: pd.Series) -> str:
    """Return the allowed range of a column if one of its numbers is outside, else "".

    Losses, qualities and residuals may be infinite, as in a run that diverged.
    """
    name, kind = str(values.name), values.dtype.kind
    if kind == "i" and not values.between(-1 if name in MINUS_1 else 0, MOST_WHOLE).all():
        return f"whole numbers in [{-1 if name in MINUS_1 else 0}, 2^53]"
    if kind == "f" and name in CLOCKS and not values.between(0, MOST_NUMBER).all():
        return f"seconds in [0, {MOST_NUMBER:g}]"
    if kind == "f" and name not in UNBOUNDED and not values.dropna().abs().le(MOST_NUMBER).all():
        return f"nan or numbers up to {MOST_NUMBER:g}"
    if name == "density" and not values.dropna().between(0, 1).all():
        return "nan or numbers in [0, 1]"
    return ""


def _renamed(text: str) -> str:
    """Return csv `text` with present column names; raise ValueError if a name occurs twice."""
    header, _, rows = text.partition("\n")
    names = [run_directory.OLD_NAMES.get(name, name) for name in header.split(",")]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"it has the column {name} twice, perhaps under its older name")
    return ",".join(names) + "\n" + rows if ",".join(names) != header else text


def mistyped(row: Any, told: Mapping[str, str]) -> dict[str, str]:
    """Return a complaint for each field of `row` whose value is not of the declared type.

    `told` maps fields to their keys in config.yaml. None is always allowed.
    """
    wrong = {}
    for name, kind in get_type_hints(type(row)).items():
        allowed = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        kinds = [each for each in allowed if each in KINDS]
        value = getattr(row, name)
        if kinds and value is not None and not _is_one(value, kinds[0]):
            said = f"{told.get(name, name)} must be {KINDS[kinds[0]]}, got {_shown(value)}"
            wrong[name] = f"{FILES.get(name, 'config.yaml')} is damaged: {said[:MOST_SAID]}"
    return wrong


def _is_one(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind in (int, float) and isinstance(value, (int, float)):
        return abs(value) <= MOST_WHOLE and (kind is float or isinstance(value, int))
    return isinstance(value, kind)


def _shown(value: Any) -> str:
    """Return `repr(value)`, but "a huge number" for ints that Python refuses to print."""
    return "a huge number" if isinstance(value, int) and abs(value) > MOST_WHOLE else repr(value)


def reason(error: Exception) -> str:
    """Return in one line why a run cannot be read or measured."""
    if isinstance(error, Damaged):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return printable.line(f"{Path(error.filename).name} cannot be read: {error.strerror}")
    return printable.line(f"{type(error).__name__}: {_first_line(error)}"[:MOST_SAID])


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
