"""One line of the doctor's: what was looked at, what was found, what that means, what to do."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Mark = Literal["ok", "warn", "missing"]  # missing: the composition asked about cannot run without


class Finding(NamedTuple):
    name: str
    mark: Mark
    found: str
    means: str = ""
    enable: str = ""  # what the user can do; "" where there is nothing to


def told(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of `check`; when it breaks, one that says why instead of a traceback."""
    try:
        return list(check())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return [Finding(name, "warn", f"could not tell: {reason}")]


def needed(asked: bool) -> Mark:
    """Mark of something that is not there, `asked` for by the composition or not."""
    return "missing" if asked else "warn"
