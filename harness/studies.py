"""Discovery of the studies: all sub-packages of the namespace package `papers`.

A namespace package has no `__init__.py`. This project's folder `papers/`, that of any installed
distribution, and that in the folder $GRADNET_STUDIES all add to it. So a user's own study needs
neither an entry in a list nor a new installation. A study is a program. One in the working
directory is ignored, as it may be a folder of somebody's results. The files of a study say what it
adds:

    conf/           choices of the configuration's groups, beside those of the harness
    claims.py       `PAPER`: what the paper claims, decided by runs
    published.csv   the paper's numbers as printed
    fitted.yaml     settings of runs that were read from these numbers
    measured.py     the runs that measure these numbers: `WORKERS`, `cells` and `notes`
    predictor.py    `PREDICTOR`, which predicts the paper's timing tables
    drawings.py     `DRAWINGS`: its own figures of a table of its runs, by file name;
                    `of_comparison`, `of_experiment`: more figures for its experiments' reports
    words.yaml      the paper's names for figures of a report, by the figure's name
    reproduce.yaml  its experiments, for `python -m harness study reproduce`
"""

import importlib
import os
import pkgutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

NAMESPACE = "papers"
HARNESS = Path(__file__).parent
OWN = "GRADNET_STUDIES"  # environment variable with the folder of --studies, which contains papers/
# `python -m` puts the working directory first; the others are installed or in PYTHONPATH.
SEARCHED = tuple(sys.path[1:] if sys.path[:1] in ([""], [os.getcwd()]) else sys.path)


class Study(NamedTuple):
    """A study: one sub-package of `papers`."""

    name: str
    folder: Path

    def file(self, name: str) -> Path | None:
        """Return the path of the study's file or folder `name`; None if it does not exist."""
        path = self.folder / name
        return path if path.exists() else None

    def module(self, name: str) -> ModuleType | None:
        """Import and return the study's module `name`; None if it does not exist."""
        if self.file(f"{name}.py") is None:
            return None
        return importlib.import_module(f"{NAMESPACE}.{self.name}.{name}")


@cache
def studies() -> tuple[Study, ...]:
    """Return all studies by name, the first of each on Python's path; restrict `papers` to them."""
    folders = [*SEARCHED, str(HARNESS.parent), *filter(None, [os.environ.get(OWN)])]
    found = [Path(folder or ".").resolve() / NAMESPACE for folder in dict.fromkeys(folders)]
    portions = [each for each in found if each.is_dir() and not _is_of_another(each)]
    # Now `import papers.x` searches only these folders and runs no foreign papers/__init__.py.
    package = sys.modules.setdefault(NAMESPACE, ModuleType(NAMESPACE))
    package.__path__ = [*map(str, portions)]
    first = {study.name: study for portion in reversed(portions) for study in _within(portion)}
    return tuple(first[name] for name in sorted(first))


def add(folder: str) -> None:
    """Use studies in `folder`/papers too, here and in child processes; ValueError if missing."""
    own = Path(folder).absolute()
    if not folder or not (own / NAMESPACE).is_dir():
        raise ValueError(f"must be a folder with a folder {NAMESPACE}/, got {folder!r}")
    os.environ[OWN] = str(own)
    studies.cache_clear()


def _is_of_another(portion: Path) -> bool:
    """Return True if `portion` is beside another copy of the harness, which owns its studies."""
    other = portion.parent / HARNESS.name
    return other.is_dir() and not other.samefile(HARNESS)


def _within(portion: Path) -> list[Study]:
    there = pkgutil.iter_modules([str(portion)])
    return [Study(each.name, portion / each.name) for each in there if each.ispkg]


def modules(name: str) -> list[ModuleType]:
    """Import and return the module `name` of each study that has one."""
    return [module for study in studies() if (module := study.module(name)) is not None]
