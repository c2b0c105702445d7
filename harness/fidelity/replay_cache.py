"""Cache of replay results on this machine, so that equal code repeats no replay.

A replay depends on its question and on the code alone: it draws no random numbers and measures no
time. Each result is a file in `replays/` of the cache folder. Its name is a digest of the question
and of all sources, so that results of older code are never read.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from harness.config.search_path import folders
from harness.workloads.data.kept import cache_folder, replacing

Rows = Sequence[Sequence[float]]
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compressors", "controllers", "harness", "profiles")
DECIDES = (".py", ".yaml", ".csv")
LIBRARIES = ("torch", "torchvision", "numpy", "pandas")


def kept(question: str, answer: Callable[[], Rows]) -> Rows:
    """Return the cached rows for `question`, or call `answer` and store its rows.

    `answer` must return floats in rows of equal length. Call it also if the cached file is damaged;
    ignore it if the result cannot be stored.
    """
    digest = hashlib.blake2b(f"{_sources()} {question}".encode(), digest_size=16).hexdigest()
    place = cache_folder(None) / "replays" / f"{digest}.json"
    with suppress(OSError, ValueError):
        if _are_rows(found := json.loads(place.read_text())):
            return found
    rows = answer()
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(place) as path:
            path.write_text(json.dumps([list(row) for row in rows]))
    return rows


def _are_rows(found: object) -> bool:
    """Return True for a list of lists of floats, all of one length."""
    if not isinstance(found, list) or not all(isinstance(row, list) for row in found):
        return False
    kinds = {type(value) for row in found for value in row}
    return bool(found) and kinds == {float} and len({len(row) for row in found}) == 1


@cache
def _sources() -> str:
    """Return a digest of the code, the configuration and the library versions used by replays."""
    places = [*(ROOT / name for name in PACKAGES), *folders()]
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(each for place in places for each in place.rglob("*.*")):
        if path.suffix in DECIDES:
            found.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
    found.update(repr([sys.version, *map(version, LIBRARIES)]).encode())
    return found.hexdigest()
