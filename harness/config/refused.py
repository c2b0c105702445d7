"""What is wrong with a command line, in one line; Hydra says it in several, or in a hundred."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache

from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from harness.config.search_path import CONF, folders, groups

NO_KEY = re.compile(r"Could not override '([^']*)'|Key '([^']*)' is not in struct")
NO_GROUP = re.compile(r"Could not find '([^']*)'|In '[^']*': Could not find '([^']*)'")
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
        key = found[1] or found[2]
        said = f"{_given(key, arguments)}: there is no key {key!r}"
        return f"{said}{_nearest(key, keys())}; {LISTED}"
    if said := replaced_group(arguments):
        return said
    if text.startswith("Error merging override"):
        return f"{text.splitlines()[0].split()[-1]}: it takes a value of another kind; {LISTED}"
    if isinstance(error, KeyError):
        return str(error.args[0])
    first = (text.strip().splitlines() or [""])[0].strip()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def replaced_group(arguments: Sequence[str]) -> str:
    """The refusal of the first argument that puts a value in place of a group; "" without one."""
    named = next(filter(_replaces_a_group, arguments), "")
    return named and f"{named}: a group takes the name of a choice; {LISTED}"


def _replaces_a_group(argument: str) -> bool:
    """True if `argument` assigns a plain value to a group of choices."""
    key, _, value = argument.partition("=")
    no_name = value == "null" or value[:1] in ("{", "[") or NUMBER.fullmatch(value.lower())
    return bool(no_name) and any((folder / key).is_dir() for folder in folders())


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
    found: list[str] = []
    waiting = [("", OmegaConf.to_container(OmegaConf.load(f"{CONF}/config.yaml"), resolve=False))]
    while waiting:
        prefix, section = waiting.pop()
        if isinstance(section, dict):
            names = [f"{prefix}{key!s}" for key in section]
            found += names
            waiting += [(f"{name}.", section[name.removeprefix(prefix)]) for name in names]
    return sorted({*groups(), *found})
