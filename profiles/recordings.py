"""Recorded networks on disk: find them, and read their text."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import repeat
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple

SHIPPED = Path(__file__).parent / "traces"
SUFFIXES = (".csv", ".cooked", ".mahimahi")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
SHOWN = 20  # bytes of a line that is no text
MOST_BYTES = 1 << 28  # of a recording; more would fill memory


class Recording(NamedTuple):
    """A file's text in UTF-8 without blank lines at its end, and the hash of its bytes."""

    path: str  # as the profile has it
    content: bytes
    digest: str

    @property
    def lines(self) -> list[str]:
        """Return all lines without white space at their ends."""
        return [line.strip() for line in self.content.decode().split("\n")]


def find(path: Any) -> Path | None:
    """Return the file of `path`: absolute, from the working directory, or shipped in traces/."""
    return find_in(SHIPPED, path)


def find_in(shipped: Path, path: Any) -> Path | None:
    """Return the file of `path`: absolute, from the working directory, or in `shipped`."""
    places = (Path(path), shipped / path) if isinstance(path, str) else ()
    return next((place for place in places if _is_file(place)), None)


def digest(path: Path) -> str:
    """Return the SHA-256 of the file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: Any) -> Recording:
    """Read the recording at `path`. Raise ValueError with file and line."""
    place = find(path)
    if place is None:
        raise ValueError(_not_found(path))
    return read_from(place, path)


def read_from(place: Path, path: Any) -> Recording:
    """Read file `place`, named `path` in errors; ValueError if it is too large or not UTF-8."""
    if (size := place.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: must have at most {MOST_BYTES} bytes, got {size}")
    content = place.read_bytes()
    text = content.removeprefix(b"\xef\xbb\xbf").rstrip()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start)
        shown = text.split(b"\n", line + 1)[line][:SHOWN]
        raise ValueError(f"{path}:{line + 1}: must be UTF-8 text, got {shown!r}") from error
    return Recording(path, text, hashlib.sha256(content).hexdigest())


def number(text: str, where: str) -> float:
    """Parse a plain decimal number. Raise ValueError, naming `where`, for other text.

    Python's float would also accept 1_0, nan and foreign digits.
    """
    if not NUMBER.fullmatch(text):
        raise ValueError(f"{where} must be a number, got {text!r}")
    return float(text)


def share(part: int, of: int) -> str:
    """Format a share in per cent."""
    return f"{100 * part / of:.3g} %"


def floor_notes(path: str, rates_mbit: Sequence[float], floor_mbit: float) -> tuple[str, ...]:
    """Say how many rates of the recording at `path` are below `floor_mbit`. Empty if none is."""
    below = sum(map(lt, rates_mbit, repeat(floor_mbit)))
    if not below:
        return ()
    said = f"{share(below, len(rates_mbit))} of the samples were below {floor_mbit:g} Mbit/s"
    return (f"{path}: {said} and play at it (floor_mbit)",)


def notes(*parts: Any) -> list[str]:
    """List the changes made to recordings in `parts` (profiles or networks), each once."""
    said: dict[str, None] = {}
    waiting = list(parts)
    while waiting:
        part = waiting.pop(0)
        said |= dict.fromkeys(getattr(part, "notes", ()))
        for field in fields(part) if is_dataclass(part) else ():
            value = getattr(part, field.name)
            inner = value.values() if isinstance(value, dict) else [value]
            waiting += [profile for profile in inner if hasattr(profile, "link")]
    return list(said)


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
