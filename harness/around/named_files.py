"""Digests of the files that a command names: other contents make another run.

A word of the command may be a file (`train.py`), contain one (`--config=base.yaml`,
`@arguments.txt`, the words of `sh -c`), or follow `-m` as a module.
"""

import glob
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from sysconfig import get_paths

from profiles import recordings

WORDS = re.compile(r"\{(rank|node|world|nodes|master|port|seed)\}")  # that differ between nodes
BETWEEN = re.compile(r"[\s=@,;:|&<>()'\"]+")
MODULE = re.compile(r"(?:-m|--module)(?:=|$)|-m(?=[A-Za-z_])")
MODULE_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
SOURCES = (".py", ".yaml", ".yml", ".toml")  # of a package
MOST_BYTES = 64 << 20  # that are read: of larger files size and time of change count
INSTALLED = re.compile("/(site|dist)-packages(/|$)|^" + re.escape(get_paths()["stdlib"]))


def digests(words: Sequence[str]) -> dict[str, str]:
    """Return a digest of every file that a command of `words` names, by its name there."""
    files = {name: paths for word in words for name in _names(word) if (paths := _files(name))}
    files |= {f"-m {name}": paths for name in _modules(words) if (paths := _sources(name))}
    program = shutil.which(words[0])
    if program and Path(program).parent != Path(sys.executable).parent and _is_script(program):
        files[words[0]] = [Path(program)]
    return {name: _digest(paths) for name, paths in files.items()}


def _names(word: str) -> Iterator[str]:
    """Yield parts of `word` that may be names of files."""
    yield from (word, word.partition("=")[2], word.partition("@")[2])
    yield from BETWEEN.split(re.sub(r"^-\w(?!=)", "", word))  # `-cbase.yaml`
    yield from BETWEEN.split(word)


def _files(name: str) -> list[Path]:
    """Return the files of `name`: several if it differs between nodes, or is a program."""
    try:
        pattern = "*".join(map(glob.escape, WORDS.split(name)[::2]))
        paths = list(map(Path, glob.glob(pattern))) if WORDS.search(name) else [Path(name)]
        found = [path for path in sorted(paths) if name and path.is_file()]
        if name and (Path(name) / "__main__.py").is_file():  # a folder, as Python runs it
            found += _all_sources(Path(name))
        return found
    except (OSError, ValueError):  # too long a name, or one with a null byte
        return []


def _modules(words: Sequence[str]) -> Iterator[str]:
    """Yield the names of the modules that `-m` runs, also within the words of a shell."""
    parts = [part for word in words for part in word.split()]
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        if option := MODULE.match(part):
            name = part[option.end() :] or following
            if MODULE_NAME.fullmatch(name):
                yield name


def _sources(module: str) -> list[Path]:
    """Return all sources of the package of `module`, or only its own if it is installed."""
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    places, found = [os.getcwd(), *own, *sys.path], list[Path]()
    for depth, _ in enumerate(names := module.split("."), 1):
        spec = PathFinder.find_spec(".".join(names[:depth]), places)
        if spec is None:
            break
        places = list(spec.submodule_search_locations or [])
        found = [Path(spec.origin)] if spec.origin and spec.has_location else []
        if not any(INSTALLED.search(str(path)) for path in [*found, *places]):
            return found + [path for place in places for path in _all_sources(Path(place))]
    return found


def _all_sources(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file())
    return sorted(path for path in found if not path.relative_to(folder).parts[0].startswith("."))


def _is_script(program: str) -> bool:
    with open(program, "rb") as file:
        return file.read(2) == b"#!"


def _digest(paths: Sequence[Path]) -> str:
    """Return a digest of the contents of `paths`, and of their names if there are several."""
    if len(paths) == 1 and paths[0].stat().st_size <= MOST_BYTES:
        return recordings.digest(paths[0])
    told = []
    for path in paths:
        about = path.stat()
        is_read = about.st_size <= MOST_BYTES
        what = recordings.digest(path) if is_read else f"{about.st_size} {about.st_mtime_ns}"
        told.append(f"{path.name} {what}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
