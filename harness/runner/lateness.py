"""Upper bound on how late other programs made a run over packets, and the run's grade.

`validity` uses it where computation is paced or replayed. Three arguments bound the delay, and the
least of them counts. (1) Had the whole run stood still while any of its threads waited for a
processor, it would have ended that much later; standing still less cannot take longer. (2) A
program that has no processor delays nothing, so the time that others had processors is a bound,
beside what computation missed of its pace. (3) On no machine does a step take less than its pace
and the time of its bytes at the planned rate.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, nan
from typing import NamedTuple

from harness.emulation.probe import PAYLOAD_SHARE

MOST_VALID_SHARE, MOST_BOUNDED_SHARE = 0.05, 0.25  # of the run's time
BYTES_PER_MBIT = 125_000
Row = Mapping[str, str]


class Lateness(NamedTuple):
    """Upper bound on the part of a run's time that is due to other programs."""

    at_most_s: float  # emulated
    share: float  # of the run's time

    @property
    def grade(self) -> str:
        """Name how far the run's times can be believed."""
        if self.share <= MOST_VALID_SHARE:
            return "valid"
        return "bounded" if self.share <= MOST_BOUNDED_SHARE else "invalid"


class Processors(NamedTuple):
    """Emulated seconds that others had the processors of this machine; NaN where unknown."""

    others_s: float = nan  # other programs
    stolen_s: float = 0.0  # the host of a virtual machine


def bound(
    steps: Sequence[Row], took_s: float, processors: Processors, fastest_s: float = 0.0
) -> Lateness | None:
    """Bound the lateness of a run that took `took_s` emulated seconds.

    `steps` are the rows of steps.csv. No machine does the run in less than `fastest_s`. Return None
    if the waits of some step were not counted.
    """
    late_s: dict[str, float] = defaultdict(float)  # by step
    waited_s = 0.0
    for row in steps:
        late_s[row["step"]] = max(late_s[row["step"]], float(row.get("late_s") or nan))
        waited_s += float(row.get("waited_s") or nan)
    own_s = sum(late_s.values())
    if not isfinite(own_s + waited_s) or took_s <= 0:
        return None
    others_s = processors.others_s
    felt_s = min(waited_s, others_s) if isfinite(others_s) else waited_s
    at_most_s = min(own_s + felt_s + processors.stolen_s, max(0.0, took_s - fastest_s))
    return Lateness(at_most_s, at_most_s / took_s)


def fastest_s(steps: Iterable[Row], highest_mbit: float, burst_s: float) -> float:
    """Least emulated seconds of ring exchanges of these bytes, none of which outlasts its step.

    `highest_mbit` is the highest rate that the profile gives any link, and an idle shaper lets
    `burst_s` emulated seconds of it through at once. A step lasts for its computation at least, and
    from its first bucket on for the time of its bytes.
    """
    by_step: dict[str, list[Row]] = defaultdict(list)
    for row in steps:
        by_step[row["step"]].append(row)
    total_s = 0.0
    for rows in by_step.values():
        sent_bytes = min(float(row["sent_bytes"]) for row in rows)
        transfer_s = sent_bytes / (highest_mbit * BYTES_PER_MBIT * PAYLOAD_SHARE) - burst_s
        paced_s = min(float(row["compute_s"]) - float(row["late_s"]) for row in rows)
        first_s = min(float(row["compute_before_first_bucket_s"]) for row in rows)
        total_s += max(paced_s, min(first_s, paced_s) + max(0.0, transfer_s))
    return total_s
