"""Sizes of a model that matter to the exchange, compared with those of the model it stands for."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FAR = 0.1  # of the largest tensor's share, and of what backward can hide


class Form(NamedTuple):
    """Sizes of a data-parallel model that decide how its gradient exchange behaves."""

    model: str
    buckets: int
    largest: float  # tensor's share of the elements
    hidden: float  # most that backward hides of communication that takes as long as it


def said(found: Sequence[Form]) -> str:
    """Describe the forms in one line. Empty if there are none."""
    return "; in the place of ".join(
        f"{each.model}: {each.buckets} bucket{'s' * (each.buckets > 1)}, the largest tensor "
        f"{each.largest:.1%}, backward hides at most {each.hidden:.0%} of as long a communication"
        for each in found
    )


def unlike(found: Sequence[Form]) -> str:
    """Describe how a stand-in differs from its original. Empty if it does not, or has none."""
    if len(found) < 2:
        return ""
    own, original = found
    near = abs(own.largest / original.largest - 1) <= FAR
    near = near and abs(own.hidden - original.hidden) <= FAR
    return "" if near and own.buckets == original.buckets else said(found)


def read(environment: Mapping[str, Any]) -> list[Form]:
    """Return the forms in a run's environment.json, or none if they are malformed."""
    try:
        return [
            Form(
                str(one["model"]), int(one["buckets"]), float(one["largest"]), float(one["hidden"])
            )
            for one in environment.get("forms") or []
        ]
    except (KeyError, TypeError, ValueError):
        return []
