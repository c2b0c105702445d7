"""Checks that a run's validity rests on, and their results. `harness.runner.validity` lists them.

A check that could not be made is a reason against validity, like one that failed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

Evidence = TypeVar("Evidence", contravariant=True)


class CouldNotCheck(Exception):
    """Raised by a check whose records are missing or too few. The text says which."""


class NotNeeded(Exception):
    """Raised by a check that cannot fail for this run. The text says why."""


class Check(NamedTuple, Generic[Evidence]):
    """A check and its name, which completes "could not be checked: "."""

    name: str
    reasons: Callable[[Evidence], Iterable[str]]  # why it does not hold; none if it does


class Verdict(NamedTuple):
    """Reasons against a run's validity, and the outcome of each check by name."""

    reasons: list[str]
    checks: dict[str, str]


HOLDS, FAILS, UNCHECKED = "holds", "does not hold", "could not be checked"


def judge(checks: Sequence[Check[Evidence]], evidence: Evidence) -> Verdict:
    """Make all `checks` of the evidence. A run without reasons is valid."""
    reasons: list[str] = []
    results: dict[str, str] = {}
    for check in checks:
        try:
            problems = list(check.reasons(evidence))
        except NotNeeded as why:
            results[check.name] = f"not needed: {why}"
        except CouldNotCheck as why:
            results[check.name] = f"{UNCHECKED}: {why}"
            reasons.append(f"{check.name} {UNCHECKED}: {why}")
        else:
            results[check.name] = FAILS if problems else HOLDS
            reasons += problems
    return Verdict(reasons, results)
