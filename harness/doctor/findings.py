"""A finding of the doctor: the check, its result, its meaning, and the remedy."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Mark = Literal["ok", "warn", "missing"]  # missing: the composition asked about cannot run without


class Finding(NamedTuple):
    name: str
    mark: Mark
    found: str
    means: str = ""
    enable: str = ""  # remedy for the user; "" if there is none


def told(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of `check`. If it fails, return one with the reason and no traceback."""
    try:
        return list(check())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return [Finding(name, "warn", f"could not tell: {reason}")]


def needed(asked: bool) -> Mark:
    """Return the mark of a missing thing, which the composition needs or not."""
    return "missing" if asked else "warn"
