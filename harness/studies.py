"""The studies beside the harness: every sub-package of `papers`, found by being there.

`papers` is a namespace package, which no `__init__.py` closes. This project's folder `papers/`, one
of any installed distribution, and one in the folder $GRADNET_STUDIES add to it alike, so that a
study of one's own needs no entry in a list and no new installation. A study is a program: one in
the working directory does not count, as that may be a folder of somebody else's results. A study
says by its files what it adds:

    conf/           choices of the configuration's groups, beside those of the harness
    claims.py       `PAPER`, what the paper says, decided by runs
    published.csv   the paper's numbers as they are printed
    fitted.yaml     which settings of runs were read from these numbers
    measured.py     which runs say these numbers: `WORKERS`, `cells` and `notes`
    predictor.py    `PREDICTOR`, which predicts its timing tables
    drawings.py     `DRAWINGS`, figures of its own by their file's name, of a table of its runs;
                    `of_comparison` and `of_experiment`, more figures of its experiments' reports
    words.yaml      what its paper calls a figure of a report, by the figure's name
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
OWN = "GRADNET_STUDIES"  # in the environment: a folder with a folder papers/, as --studies says
# `python -m` puts the working directory first; what follows is installed, or in PYTHONPATH.
SEARCHED = tuple(sys.path[1:] if sys.path[:1] in ([""], [os.getcwd()]) else sys.path)


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
    """Return every study, by name; of two of one name the first on Python's path counts."""
    folders = [*SEARCHED, str(HARNESS.parent), *filter(None, [os.environ.get(OWN)])]
    found = [Path(folder or ".").resolve() / NAMESPACE for folder in dict.fromkeys(folders)]
    portions = [each for each in found if each.is_dir() and not _is_of_another(each)]
    # From now on `import papers.x` looks in these alone, and runs no papers/__init__.py of others.
    package = sys.modules.setdefault(NAMESPACE, ModuleType(NAMESPACE))
    package.__path__ = [*map(str, portions)]
    first = {study.name: study for portion in reversed(portions) for study in _within(portion)}
    return tuple(first[name] for name in sorted(first))


def add(folder: str) -> None:
    """Count the studies in `folder`/papers, in this process and those that it starts.

    Raise ValueError if there is no such folder.
    """
    own = Path(folder).absolute()
    if not folder or not (own / NAMESPACE).is_dir():
        raise ValueError(f"must be a folder with a folder {NAMESPACE}/, got {folder!r}")
    os.environ[OWN] = str(own)
    studies.cache_clear()


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
