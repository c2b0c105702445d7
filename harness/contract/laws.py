"""Laws: properties that every part of one kind must have, with the cases that test them."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import BrokenBarrierError
from typing import Any

from compressors.checks import BadPart

Make = Callable[..., Any]  # builds a new part; some laws pass overrides of settings
Case = tuple[Any, ...]


class LawBroken(AssertionError):
    """Error of a part that breaks a law; its message says what was observed."""


def demand(good: bool, seen: str) -> None:
    """Raise LawBroken with the observation `seen` unless `good`."""
    if not good:
        raise LawBroken(seen)


@dataclass(frozen=True)
class Law:
    """Property of every part of a kind; `holds(make, *case)` raises an error if it is broken."""

    said: str
    holds: Callable[..., None]
    cases: tuple[Case, ...] = ((),)

    def broken(self, make: Make) -> str:
        """Test all cases. Return the observation in the first that fails, or ""."""
        for case in self.cases:
            try:
                self.holds(make, *case)
            except BrokenBarrierError:
                return self._seen(case, "workers do not call the same collectives")
            except Exception as error:  # parts may raise anything
                first = (str(error).strip().splitlines() or [""])[0]
                kept = isinstance(error, LawBroken | BadPart)
                return self._seen(case, first if kept else f"{type(error).__name__}: {first}")
        return ""

    def _seen(self, case: Case, what: str) -> str:
        tried = ", ".join(map(str, case))
        return f"{what} (case {tried})" if tried else what
