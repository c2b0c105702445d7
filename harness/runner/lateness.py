"""Upper bound on how much other programs delayed the end of a run over packets, and its grade.

`harness.runner.validity` uses it if computation is paced or replayed. The twin of a run is the same
run on a quiet machine: the same steps, pace and bytes. Why the bound holds:

1. The time of a step consists of computation, bytes on links, and waits for a processor. Other
   programs lengthen computation beyond its pace (`late_s`) and make threads wait (`waited_s`).
2. Trace the run back from its end: from each moment to the event for which the thread waited just
   before. The twin has to do all the work in this chain, so it saves at most the waits and the
   missed paces in it. These are at most the waits of all threads of all ranks, and each step's
   latest pace.
3. Ranks also wait for each other, with or without other programs: the sum of 2 is then far too
   high. If the run paused whenever any other program has a processor, and only then, it would end
   later than its twin by at most `others_s`. We assume that running meanwhile makes it end no
   later. So waits add at most `others_s`. Missed paces are added in full, as other programs also
   slow caches. The kernel counts `others_s` by clock ticks, and misses a program that always runs
   between two ticks.
4. No machine does a step in less than its pace and the time of its bytes at the planned rate. So
   the delay is at most the run's time beyond that.
5. The host of a virtual machine takes time that neither threads nor programs see. It is added to 2
   and 3; 4 includes it already.
6. Each of 2, 3 and 4 bounds the delay, so their minimum does.

A program that keeps a thread from a processor for d seconds, and so delays the end of the run by d,
adds at least d to each of the three. A controller that reads times would make other choices in the
twin. No bound covers this effect, so `validity` accepts such runs only with the grade valid.
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
    """Upper bound on the time that other programs added to a run."""

    at_most_s: float  # emulated
    share: float  # of the run's time

    @property
    def grade(self) -> str:
        """Grade of a run without other faults: valid, bounded or invalid."""
        if self.share <= MOST_VALID_SHARE:
            return "valid"
        return "bounded" if self.share <= MOST_BOUNDED_SHARE else "invalid"


class Processors(NamedTuple):
    """Processor time of others in emulated seconds, summed over processors; NaN if unknown."""

    others_s: float = nan  # other programs
    stolen_s: float = 0.0  # the host of a virtual machine


def bound(
    steps: Sequence[Row], took_s: float, processors: Processors, fastest_s: float = 0.0
) -> Lateness | None:
    """Bound the lateness of a run that took `took_s` emulated seconds.

    `steps` are the rows of steps.csv. No machine does the run in less than `fastest_s` emulated
    seconds; 0 if that is not known. Return None if the waits of some step were not counted.
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
    """Return the least emulated seconds that any machine needs for the steps.csv rows `steps`.

    Gradients are exchanged in rings over all workers, and each exchange ends within its step. No
    link is faster than `highest_mbit`, and an idle shaper passes `burst_s` emulated seconds of it
    at once. So a step lasts at least for its computation, and after its first bucket for the time
    of its bytes.
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
