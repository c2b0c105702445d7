"""What is wrong with a command line, in one line; Hydra says it in several, or in a hundred."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf

from harness.config import sweep
from harness.config.search_path import CONF, folders, groups

NO_KEY = re.compile(r"Could not override '([^']*)'|Key '([^']*)' is not in struct")
SWEPT = re.compile(r"Ambiguous value for argument '([^']*)'")
NUMBER = re.compile(r"[-+]?(inf|nan|[0-9.]+(e[-+]?[0-9]+)?)|true|false")
LISTED = "`python -m harness --help` lists them"
NEAR = 3  # that are named


def refused(error: Exception, arguments: Sequence[str]) -> str:
    """One line on an error of composing or checking `arguments`."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        near = _nearest(choice, error.options) or f"; choices: {', '.join(error.options)}"
        return f"{group} has no choice {choice!r}{near}; {LISTED}"
    if found := NO_KEY.search(text):
        return _no_key(found[1] or found[2], arguments)
    if said := replaced(arguments):
        return said
    if found := SWEPT.search(text):
        return f"{found[1]}: several values are a sweep, which needs -m"
    if isinstance(error, OverrideParseException):
        return f"{error.override} cannot be read as KEY=VALUE; quote what has brackets or spaces"
    if text.startswith("Error merging override"):
        return f"{text.splitlines()[0].split()[-1]}: it takes a value of another kind; {LISTED}"
    if isinstance(error, KeyError):
        return str(error.args[0])
    first = (text.strip().splitlines() or [""])[0].strip()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def replaced(arguments: Sequence[str]) -> str:
    """The refusal of the first argument that gives a value to a group, or to a section of keys.

    "" without one.
    """
    return _replaced_group(arguments) or _replaced_section(arguments)


def _replaced_group(arguments: Sequence[str]) -> str:
    named = next(filter(_replaces_a_group, arguments), "")
    return named and f"{named}: a group takes the name of a choice; {LISTED}"


def _replaces_a_group(argument: str) -> bool:
    """True if `argument` assigns a plain value to a group of choices."""
    key, _, value = argument.partition("=")
    no_name = value == "null" or value[:1] in ("{", "[") or NUMBER.fullmatch(value.lower())
    return bool(no_name) and any((folder / key).is_dir() for folder in folders())


def _replaced_section(arguments: Sequence[str]) -> str:
    for argument in arguments:
        key = argument.partition("=")[0]
        if key not in groups() and (inner := [each for each in keys() if _is_in(key, each)]):
            return f"{argument}: a section takes its keys one by one: {', '.join(inner)}"
    return ""


def _is_in(section: str, key: str) -> bool:
    """True if `key` is one of `section`, not of a section in it."""
    return key.rpartition(".")[0] == section


def _no_key(key: str, arguments: Sequence[str]) -> str:
    """What to write in place of a key that is not there: of the section, or of another."""
    given = _given(key, arguments)
    known, choices = _composed([each for each in arguments if each != given])
    section, _, last = key.rpartition(".")
    if section in known:
        inner = [each.rpartition(".")[2] for each in known if _is_in(section, each)]
        near = _nearest(last, inner) or f"; keys: {', '.join(inner) or 'none'}"
        there = f"{section}={choices[section]}" if section in choices else section
        return f"{given}: {there} has no key {last!r}{near}"
    said = f"{given}: there is no key {key!r}"
    if elsewhere := [each for each in known if each.rpartition(".")[2] == last]:
        return f"{said}; write {' or '.join(f'{each}=' for each in elsewhere[:NEAR])}"
    return f"{said}{_nearest(key, keys())}; {LISTED}"


def _composed(arguments: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """Dotted keys of what `arguments` compose to, and the choice of each group; none if none do."""
    asked = [each for each in arguments if each[:1] != "-"]
    with suppress(HydraException), sweep.hydra():
        config = sweep.load(asked, sweep.RunMode.MULTIRUN)
        plain = OmegaConf.to_container(config, resolve=False)
        return _flat(plain), config.hydra.runtime.choices
    return [], {}


def _given(key: str, arguments: Sequence[str]) -> str:
    """The argument that names `key`; else the key."""
    last = key.split(".")[-1]
    return next((each for each in arguments if last in each.partition("=")[0]), key)


def _nearest(word: str, known: Sequence[str]) -> str:
    found = get_close_matches(word, known, NEAR, cutoff=0.5)
    return f"; nearest: {', '.join(found)}" if found else ""


@cache
def keys() -> list[str]:
    """All keys of conf/config.yaml, nested ones dotted, and all groups."""
    config = OmegaConf.to_container(OmegaConf.load(f"{CONF}/config.yaml"), resolve=False)
    return list(dict.fromkeys([*groups(), *_flat(config)]))


def _flat(config: Any) -> list[str]:
    """Dotted keys of nested mappings, sections among them."""
    found: list[str] = []
    waiting = [("", config)]
    while waiting:
        prefix, section = waiting.pop(0)
        if isinstance(section, Mapping):
            found += [f"{prefix}{key!s}" for key in section if key != "_target_"]
            waiting += [(f"{prefix}{key!s}.", section[key]) for key in section]
    return found
