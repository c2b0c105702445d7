"""Readable labels of methods, for the legends, tables and sentences of a report.

A method's name lists all settings in which it differs from its preset, such as
`topk_0.05_rounds=1`. Its label puts these in words, and omits the settings that all methods of the
same kind in an experiment share. Result files keep the names.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness.config import label, plain_yaml, search_path
from harness.reporting.analysis import load
from harness.studies import studies

GROUPS = ("method", "compressor", "activations")  # a name begins with a choice of these
SECTIONS = ("compressor", "controller", "activations", "parallel")  # a name may have their keys
SETTINGS = ("ef", "ps", "agree", "residual_decay", "bucket_mb", "fusion", "after_backward",
            "per_tensor", "per_bucket", *label.NUMBERS)  # fmt: skip
MOST_SETTINGS = 3  # per label, if these are enough to be unique
DENSITY = re.compile(r"\d[\d.e-]*")
DIGEST = re.compile(r"-[0-9a-f]{6}\b")  # stands for a value without a short form


class NamePart(NamedTuple):
    """One part of a method's name: the part for gradients, or that for activations."""

    kind: str  # a preset, or a choice of a group
    density: str  # "" if the name has none
    settings: tuple[str, ...]  # `rank=4`, `no_ef`


def readable(runs: pd.DataFrame, given: Mapping[str, str]) -> pd.DataFrame:
    """Return `runs`, rows of `load.runs`, with short labels in column `method`.

    The old names move to column `name`. Labels that are made here are unique within an experiment.
    `given` maps names to labels of the user's choice, and these may coincide. The settings of each
    method are read from one of its run directories.
    """
    named = runs.assign(name=runs.method)
    for _, rows in runs[runs.method.notna()].groupby("experiment", sort=False):
        paths = rows.drop_duplicates("method").set_index("method").path
        configs = {str(name): load.config(path) for name, path in paths.items()}
        labels = labels_of(configs) | {
            name: said for name, said in given.items() if name in configs
        }
        named.loc[rows.index, "method"] = rows.method.map(labels)
    return named


def labels_of(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the label of each method; `configs` has the settings of one of its runs by name.

    A name is its own label if it contains anything but presets, parts and their keys.
    """
    parts = {name: _parts(name, config) for name, config in configs.items()}
    kinds: dict[tuple[str, ...], list[set[str]]] = {}
    for found in filter(None, parts.values()):
        settings = {setting for part in found for setting in part.settings}
        kinds.setdefault(tuple(part.kind for part in found), []).append(settings)
    shared = {kind: set.intersection(*of) if len(of) > 1 else set() for kind, of in kinds.items()}
    labels = {name: name for name in parts}
    for most in (None, MOST_SETTINGS):  # prefer the shorter label if it is unique
        told = {}
        for name, found in parts.items():
            known = shared.get(tuple(part.kind for part in found), set())
            apart = [[each for each in part.settings if each not in known][:most] for part in found]
            told[name] = " + ".join(map(_words, found, apart)) or name
        count = Counter(told.values())
        labels |= {name: said for name, said in told.items() if count[said] == 1}
    return labels


def _parts(name: str, config: Mapping[str, Any]) -> list[NamePart]:
    """Split `name` into its parts; [] if one does not begin with a preset or a known choice."""
    kinds = {choice for group in GROUPS for choice in search_path.choices(group)}
    sections = [config.get(section) for section in SECTIONS]
    keys = {str(key) for section in sections if isinstance(section, dict) for key in section}
    known = {*keys, *SETTINGS, *kinds, *search_path.choices("controller")}
    found = []
    for text in name.split("+"):
        kind = max((k for k in kinds if f"{text}_".startswith(k + "_")), key=len, default="")
        if not kind:
            return []
        settings = _settings(text.removeprefix(kind).split("_")[1:], known)
        if settings is None:
            return []
        density = settings.pop(0) if settings and DENSITY.fullmatch(settings[0]) else ""
        found.append(NamePart(kind, density, tuple(settings)))
    return found


def _settings(pieces: list[str], known: Collection[str]) -> list[str] | None:
    """Join `pieces` of a name to settings; None if one is neither a setting nor part of a value."""
    found: list[str] = []
    while pieces:
        for size in range(len(pieces), 0, -1):
            text = "_".join(pieces[:size])
            key = DIGEST.sub("", text.partition("=")[0]).removeprefix("no_").rpartition(".")[2]
            is_whole = "=" not in "".join(pieces[: size - 1])
            if is_whole and (key in known or DENSITY.fullmatch(text) or DIGEST.search(text)):
                found.append(text)
                pieces = pieces[size:]
                break
        else:
            if "=" in pieces[0] or "=" not in "".join(found[-1:]):
                return None
            found[-1] += f"_{pieces.pop(0)}"
    return found


def _words(part: NamePart, settings: Iterable[str]) -> str:
    """Format a part with `settings` only: `top-k 1 %, no error feedback`."""
    said = [_word(part.kind)]
    if part.density:
        said[0] += f" {100 * float(part.density):.3g} %"
    for setting in settings:
        key, sign, value = DIGEST.sub("", setting).partition("=")
        key = key.rpartition(".")[2]
        negated, key = key.startswith("no_"), key.removeprefix("no_")
        unit = " MB" * key.endswith("_mb")
        text = "no " * negated + _word(key.removesuffix("_mb" * bool(sign)))
        said.append(f"{text} {value}{unit}" if sign else text)
    return ", ".join(said)


def _word(name: str) -> str:
    return words().get(name) or name.replace("_", " ")


@cache
def words() -> dict[str, str]:
    """Return words by name, from words.yaml of this package and of studies; the package's win."""
    files = [file for study in studies() if (file := study.file("words.yaml"))]
    found: dict[str, str] = {}
    for file in [*files, Path(__file__).with_name("words.yaml")]:
        found |= {str(name): str(said) for name, said in (plain_yaml.from_file(file) or {}).items()}
    return found
