"""Evidence from a running network: plan followed, shapers not exceeded, machine not exhausted."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness.emulation.direction import Direction
from harness.emulation.links import Counters
from harness.emulation.pressure import Since

_LARGEST_PACKET_BYTES = 68_000  # a shaper lets one through whole, GSO included


class Audit:
    """Comparison of the shapers' state with the plan, at every sample and change; see `summary`."""

    def __init__(self, directions: Sequence[Direction]) -> None:
        self._directions = directions
        self._first: Mapping[str, Counters] = {}
        self._last_s = 0.0
        self._allowed = {d.name: 0.0 for d in directions}  # bytes the shaper may have let through
        self._carried = {d.name: 0 for d in directions}
        self._highest = {d.name: 0.0 for d in directions}  # real Mbit/s
        self._samples = self._off_plan = 0
        self._outside = 0  # changes
        self._late_ms: list[float] = []
        self._since = Since()

    def changed(self, late_ms: float) -> None:
        self._late_ms.append(late_ms)

    def changed_outside(self, changes: int) -> None:
        """Count changes that others made to the shaping since the last sample."""
        self._outside += changes

    def sample(self, counted: Mapping[str, Counters]) -> None:
        """Add the kernel's present counters of all links, by name, to carried and allowed bytes."""
        now_s = time.monotonic()
        if first := not self._first:
            self._first = counted
            self._since = Since()
        for direction in self._directions:
            name = direction.name
            recent_mbit = direction.take_highest_mbit()
            self._carried[name] = counted[name].bytes - self._first[name].bytes
            if first:
                continue
            self._highest[name] = max(self._highest[name], recent_mbit)
            self._allowed[name] += recent_mbit * 125_000 * (now_s - self._last_s)
        self._last_s = now_s

    def compare(self, planned_mbit: float, applied_mbit: float) -> None:
        """Count a sample as wrong if its rate differs from the plan by more than 1 byte/s."""
        self._samples += 1
        self._off_plan += abs(planned_mbit - applied_mbit) > 1e-4 + 1e-6 * planned_mbit

    def summary(self) -> dict[str, float | int | None]:
        """Return the audit of all links, the worst value of each kind; None if it was not measured.

        It has the number and lateness (ms) of changes, changes by others, and the share of samples
        off the plan. It also has the largest carried / allowed bytes, and shares of processor time.
        """
        late = sorted(self._late_ms)
        return {
            "changes": len(late),
            "late_ms_p99": late[int(0.99 * (len(late) - 1))] if late else None,
            "late_ms_max": late[-1] if late else None,
            "changed_outside": self._outside,
            "off_plan_share": self._off_plan / self._samples if self._samples else None,
            "carried_over_allowed": max(map(self._excess, self._directions), default=None),
        } | self._since.pressure()._asdict()

    def _excess(self, direction: Direction) -> float:
        """Return carried bytes over the bytes that the rates allow. Above 1 it did not shape."""
        burst = direction.credit_bytes(self._highest[direction.name])
        allowed = self._allowed[direction.name] + burst + _LARGEST_PACKET_BYTES
        return self._carried[direction.name] / allowed


def worst(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge summaries of all machines: the least idle processors, else the highest value."""
    found = {}
    for key in summaries[0]:
        seen = [summary[key] for summary in summaries if summary[key] is not None]
        found[key] = (min if key == "cpu_idle_share" else max)(seen, default=None)
    return found
