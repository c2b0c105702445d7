"""How far a claim depends on settings that nobody knows: where on a grid it holds, and the border.

Only points whose runs can decide the claim count. A point of the grid has a value of every axis. A
line of an axis is all points that differ in it alone; the border crosses it where a claim holds at
one value and does not at the next.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from harness.reporting.claims.base import FAILS, HOLDS, UNDECIDED

Axes = Mapping[str, Sequence[str]]  # values of each key, in order
Point = tuple[str, ...]  # a value of each
DECIDABLE = (HOLDS, FAILS, UNDECIDED)


class Crossing(NamedTuple):
    """Turn of a claim along an axis: between two neighbouring values, on some lines."""

    axis: str
    between: tuple[str, str]
    lines: int  # that it crosses there
    of_lines: int  # that have both points


def points(axes: Axes) -> list[Point]:
    """All points of the grid; the last axis changes first."""
    return list(product(*axes.values()))


def share(verdicts: Mapping[Point, str]) -> float:
    """Share of the points that can decide the claim at which it holds; nan without any."""
    held = [verdict == HOLDS for verdict in verdicts.values() if verdict in DECIDABLE]
    return sum(held) / len(held) if held else float("nan")


def crossings(axes: Axes, verdicts: Mapping[Point, str]) -> list[Crossing]:
    """All places where the border crosses lines, by axis and in the order of its values."""
    found = []
    for at, (axis, values) in enumerate(axes.items()):
        for between in pairwise(values):
            pairs = list(_pairs(verdicts, at, *between))
            crossed = sum(one != other for one, other in pairs)
            if crossed:
                found.append(Crossing(axis, between, crossed, len(pairs)))
    return found


def _pairs(
    verdicts: Mapping[Point, str], at: int, value: str, following: str
) -> Iterator[tuple[bool, bool]]:
    """Yield whether the claim holds at each point with `value`, and at its neighbour."""
    for point, verdict in verdicts.items():
        neighbour = (*point[:at], following, *point[at + 1 :])
        both = (verdict, verdicts.get(neighbour))
        if point[at] == value and all(each in DECIDABLE for each in both):
            yield verdict == HOLDS, verdicts[neighbour] == HOLDS


def told(axes: Axes, verdicts: Mapping[Point, str], refused: int) -> list[str]:
    """Lines that say where the claim holds; `refused` points are none that a run can have."""
    of = sum(verdict in DECIDABLE for verdict in verdicts.values())
    beside = f" ({refused} more are refused)" if refused else ""
    held = f"{share(verdicts):.0%} of {of}" if of else "none of 0"
    lines = [f"holds in {held} settings that can decide it{beside}"]
    others = Counter(verdict for verdict in verdicts.values() if verdict != HOLDS)
    lines += [f"{verdict}: {count}" for verdict, count in sorted(others.items())]
    border = crossings(axes, verdicts)
    for each in border:
        lines.append(
            f"border: {each.axis} between {' and '.join(each.between)}, "
            f"on {each.lines} of {each.of_lines} lines"
        )
    still = [axis for axis in axes if axis not in {each.axis for each in border}]
    return [*lines, *(f"no border along {axis}" for axis in still if of)]


def shares(axes: Axes, verdicts: Mapping[Point, str]) -> list[list[float]]:
    """Share of points at which the claim holds, nan without any.

    A column for each value of the first axis, and a row for each of the second, where there is one.
    """
    columns, *others = axes.values()
    starts = product(*others[:1])
    return [[_share_of(verdicts, (column, *start)) for column in columns] for start in starts]


def _share_of(verdicts: Mapping[Point, str], start: Point) -> float:
    """Share of the points that begin so."""
    return share({p: verdict for p, verdict in verdicts.items() if p[: len(start)] == start})
