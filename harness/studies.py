"""The studies beside the harness: every sub-package of `papers`, found by being there.

`papers` is a namespace package, which no `__init__.py` closes. This project's folder `papers/`, one
of the working directory, and one of any installed distribution add to it alike, so that a study of
one's own needs no entry in a list and no new installation. A study says by its files what it adds:

    conf/           choices of the configuration's groups, beside those of the harness
    claims.py       `PAPER`, what the paper says, decided by runs
    published.csv   the paper's numbers as they are printed
    fitted.yaml     which settings of runs were read from these numbers
    measured.py     which runs say these numbers: `WORKERS`, `cells` and `notes`
    timing.py       `TIMING`, by which its timing tables are predicted
    ranges/         between which values of what nobody knows a claim is mapped
    drawings.py     `DRAWINGS`, figures of its own by their file's name, of a table of its runs
    words.yaml      what its paper calls a figure of a report, by the figure's name
    reproduce.yaml  its experiments, for `python -m harness.reproduce`
"""

import importlib
import pkgutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

NAMESPACE = "papers"
HARNESS = Path(__file__).parent


class Study(NamedTuple):
    """A sub-package of `papers`."""

    name: str
    folder: Path

    def file(self, name: str) -> Path | None:
        """Its file or folder of that name; None where it has none."""
        path = self.folder / name
        return path if path.exists() else None

    def module(self, name: str) -> ModuleType | None:
        """Its module of that name, imported; None where it has none."""
        if self.file(f"{name}.py") is None:
            return None
        return importlib.import_module(f"{NAMESPACE}.{self.name}.{name}")


@cache
def studies() -> tuple[Study, ...]:
    """Every study, by name; of two of one name the first on Python's path counts."""
    if find_spec(NAMESPACE) is None:
        return ()
    portions = map(Path, importlib.import_module(NAMESPACE).__path__)
    found = [study for each in portions if not _is_of_another(each) for study in _within(each)]
    first = {study.name: study for study in reversed(found)}
    return tuple(first[name] for name in sorted(first))


def _is_of_another(portion: Path) -> bool:
    """True if it lies beside another copy of the harness, whose studies are not this one's."""
    other = portion.parent / HARNESS.name
    return other.is_dir() and not other.samefile(HARNESS)


def _within(portion: Path) -> list[Study]:
    there = pkgutil.iter_modules([str(portion)])
    return [Study(each.name, portion / each.name) for each in there if each.ispkg]


def modules(name: str) -> list[ModuleType]:
    """The modules of that name of all studies that have one."""
    return [module for study in studies() if (module := study.module(name)) is not None]
