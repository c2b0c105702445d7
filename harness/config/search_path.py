"""Folders of configuration (conf/, the studies', the user's), and what they contain.

This module imports neither Hydra nor torch, so that `--help` answers at once.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness import studies
from harness.config import plain_yaml
from harness.config.typed import BadSetting, of_part

CONF = Path(__file__).resolve().parents[2] / "conf"
CONFIG_DIR = ("--config-dir", "-cd")
OWN = "GRADNET_CONFIG"  # environment variable with the folder of --config-dir


def folders() -> list[Path]:
    """Return the configuration folders in Hydra's order; the first one with a choice wins."""
    ours = [CONF, *(found for study in studies.studies() if (found := study.file("conf")))]
    return [*ours, *_own()]


def _own() -> list[Path]:
    return [Path(os.environ[OWN])] if os.environ.get(OWN) else []


def add(folder: str) -> None:
    """Add `folder` to the folders with choices, for this process and those that it starts.

    Raise BadSetting if it is not a folder, or if one of its choices has the name of another choice.
    """
    own = Path(folder).absolute()
    if not folder or not own.is_dir():
        raise BadSetting(f"--config-dir must be a folder, got {folder or 'nothing'}")
    os.environ.pop(OWN, None)
    for path in sorted(each.relative_to(own) for each in own.rglob("*.yaml")):
        if any((there / path).is_file() for there in folders()):
            raise BadSetting(f"--config-dir: {folder}/{path} has the name of a choice; rename it")
    os.environ[OWN] = str(own)


def stamp() -> int:
    """Return a hash that changes when a yaml file in any folder is added, removed or changed."""
    files = (path for folder in folders() for path in folder.rglob("*.yaml"))
    return hash(
        tuple((str(path), (told := path.stat()).st_mtime_ns, told.st_size) for path in files)
    )


def check_own() -> None:
    """Raise BadSetting for a yaml file in the user's own folder that our YAML reader refuses."""
    for path in (path for folder in _own() for path in sorted(folder.rglob("*.yaml"))):
        with readable(path):
            plain_yaml.check(plain_yaml.text_of(path))


def without_folders(arguments: Sequence[str]) -> list[str]:
    """Register the folders of --config-dir and --studies; return the other arguments.

    Also let `_target_` name modules of the working directory. Raise BadSetting for a bad folder.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    others, waiting = [], iter(arguments)
    for argument in waiting:
        option, _, folder = argument.partition("=")
        if option in CONFIG_DIR:
            add(folder or next(waiting, ""))
        elif option == "--studies":
            with of_part(option, ValueError):
                studies.add(folder or next(waiting, ""))
        else:
            others.append(argument)
    return others


@contextmanager
def readable(file: Path | str) -> Iterator[None]:
    """Context manager: raise errors of reading the YAML `file` as a one-line BadSetting."""
    try:
        yield
    except (yaml.YAMLError, UnicodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadSetting(f"{where} must be YAML, and {said}") from error


def values(file: Path) -> Any:
    """Return the values in the yaml `file`; raise BadSetting with its name if it is not valid."""
    with readable(file):
        return plain_yaml.from_file(file)


def choices(group: str) -> dict[str, Path]:
    """Return the yaml file of each choice of a group such as `network/device`, by name."""
    files = [file for folder in folders() for file in sorted((folder / group).glob("*.yaml"))]
    first = {file.stem: file for file in reversed(files)}
    return dict(sorted(first.items()))


def groups(group: str = "") -> list[str]:
    """Return the groups inside `group`, such as `network/device`; "" gives the top-level groups."""
    inside = {path for folder in folders() for path in (folder / group).glob("*") if path.is_dir()}
    return sorted({str(Path(group, path.name)) for path in inside})


@cache
def keys() -> list[str]:
    """Return all groups and all keys of conf/config.yaml, nested ones dotted."""
    found = dict.fromkeys([*groups(), *dotted(values(CONF / "config.yaml"))])
    return [key for key in found if key.rpartition(".")[2] not in ("defaults", "_target_")]


def dotted(config: Any) -> list[str]:
    """Return the dotted keys of nested mappings, including sections and `_target_` keys."""
    found: list[str] = []
    waiting = [("", config)]
    while waiting:
        prefix, section = waiting.pop(0)
        if isinstance(section, Mapping):
            found += [f"{prefix}{key!s}" for key in section]
            waiting += [(f"{prefix}{key!s}.", section[key]) for key in section]
    return found
