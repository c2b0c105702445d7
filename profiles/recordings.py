"""Recorded networks on disk: where they are, and what a line of one may say."""

import hashlib
import re
from pathlib import Path
from typing import Any, NamedTuple

SHIPPED = Path(__file__).parent / "traces"
SUFFIXES = (".csv", ".cooked", ".mahimahi")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Recording(NamedTuple):
    """A file's lines, without their ends, and the hash of its bytes."""

    lines: list[str]
    digest: str


def find(path: Any) -> Path | None:
    """The file that is meant: absolute, from the working directory, or shipped in traces/."""
    return find_in(SHIPPED, path)


def find_in(shipped: Path, path: Any) -> Path | None:
    """The file that is meant: absolute, from the working directory, or in a folder of ours."""
    places = (Path(path), shipped / path) if isinstance(path, str) else ()
    return next((place for place in places if _is_file(place)), None)


def digest(path: Path) -> str:
    """SHA-256 of what is in the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


SHOWN = 20  # bytes of a line that is no text


def read(path: Any) -> Recording:
    """The file's lines, blank ones at its end left out; ValueError names file and line."""
    place = find(path)
    if place is None:
        raise ValueError(_not_found(path))
    return read_from(place, path)


MOST_BYTES = 1 << 28  # of a recording; more would fill memory


def read_from(place: Path, path: Any) -> Recording:
    """Read a recording from a file that was found; errors call it `path`."""
    if (size := place.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: must have at most {MOST_BYTES} bytes, got {size}")
    content = place.read_bytes()
    lines = []
    for number, line in enumerate(content.rstrip().split(b"\n"), start=1):
        try:
            lines.append(line.decode("utf-8-sig").strip())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}:{number}: must be UTF-8 text, got {line[:SHOWN]!r}"
            ) from error
    return Recording(lines, hashlib.sha256(content).hexdigest())


def number(text: str, where: str) -> float:
    """A plain decimal number; Python alone would also take 1_0, nan and digits of any script."""
    if not NUMBER.fullmatch(text):
        raise ValueError(f"{where} must be a number, got {text!r}")
    return float(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        return False


def _not_found(path: Any) -> str:
    names = ", ".join(sorted(file.name for file in SHIPPED.iterdir() if file.suffix in SUFFIXES))
    return (
        f"path must be a file: absolute, from the working directory, or one of {names}; "
        f"got {path!r}"
    )
