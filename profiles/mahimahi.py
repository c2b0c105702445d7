"""Replay of a packet-delivery trace of Mahimahi (Netravali et al., 2015) as rates.

Each line is a whole millisecond at which the link could deliver one packet of 1500 bytes. The trace
repeats after the time of its last line. Opportunities are counted in bins (start, end], so that the
last line counts. An opportunity at 0 belongs to the first bin.
"""

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import le

from profiles.limits import MOST_S, check_between, check_choice, check_mbit, check_whole
from profiles.rated import Rated
from profiles.recordings import Recording, floor_notes, read

PACKET_KBIT = 12  # 1500 bytes; over milliseconds this is Mbit/s
LONGEST_MS = 86_400_000  # a day; bins of it fit in memory
WHOLE = re.compile(r"\d{1,12}", re.ASCII)


@dataclass(frozen=True)
class Mahimahi(Rated):
    """Profile that replays a mahimahi trace, equal in both ways. `stagger_s` shifts it by node."""

    path: str  # absolute, from the working directory, or the name of one in profiles/traces
    bin_ms: int = 500  # in which opportunities are counted, in [10, 60000]
    floor_mbit: float = 0.1  # least rate, also of a bin without opportunities: no link stands still
    end: str = "loop"  # loop: start over; hold: keep the last bin
    stagger_s: float = 0.0  # node n reads the trace n * stagger_s further on
    digest: str = field(init=False, repr=False)  # of the file: traces are equal where contents are
    _length_s: float = field(init=False, repr=False, compare=False)
    notes: tuple[str, ...] = field(init=False, repr=False, compare=False)  # changes made to it
    _rates_mbit: array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(10, 60_000, bin_ms=self.bin_ms)
        check_mbit(floor_mbit=self.floor_mbit)
        check_choice(("loop", "hold"), end=self.end)
        check_between(0, MOST_S, stagger_s=self.stagger_s)
        super().__post_init__()
        recording = read(self.path)
        times_ms = parse(recording)
        counted = binned_mbit(times_ms, self.bin_ms)
        rates = array("d", map(max, counted, repeat(self.floor_mbit)))
        check_mbit(**{f"{self.path}: its highest rate": max(rates)})
        object.__setattr__(self, "digest", recording.digest)
        object.__setattr__(self, "notes", floor_notes(self.path, counted, self.floor_mbit))
        object.__setattr__(self, "_length_s", times_ms[-1] / 1000)
        object.__setattr__(self, "_rates_mbit", rates)

    def mbit(self, time_s: float, node: int) -> float:
        at_s = time_s + node * self.stagger_s
        if self.end == "loop":
            at_s %= self._length_s
        return self._rates_mbit[min(int(at_s * 1000 / self.bin_ms), len(self._rates_mbit) - 1)]

    def range_mbit(self) -> tuple[float, float]:
        return min(self._rates_mbit), max(self._rates_mbit)


def parse(recording: Recording) -> array:
    """Return delivery times in ms. Raise ValueError with file and line for a bad or falling one."""
    words = recording.content.split()
    if len(words) == recording.content.count(b"\n") + 1 and b"".join(words).isdigit():
        if max(map(len, words)) <= 12:
            times_ms = array("Q", map(int, words))
            if (
                max(times_ms) <= LONGEST_MS
                and all(map(le, times_ms, times_ms[1:]))
                and times_ms[-1]
            ):
                return times_ms
    before_ms = 0
    for place, line in enumerate(recording.lines, start=1):
        where = f"{recording.path}:{place}"
        if not (WHOLE.fullmatch(line) and int(line) <= LONGEST_MS):
            raise ValueError(f"{where}: must be whole ms in [0, {LONGEST_MS}], got {line!r}")
        if int(line) < before_ms:
            raise ValueError(f"{where}: must be >= {before_ms} ms (the line before), got {line}")
        before_ms = int(line)
    raise ValueError(f"{recording.path}:{place}: the last line must be above 0 ms, got 0")


def binned_mbit(times_ms: array, bin_ms: int) -> array:
    """Return the rate of each bin of the trace. The last bin may be shorter."""
    length_ms = times_ms[-1]
    ends_ms = [*range(bin_ms, length_ms, bin_ms), length_ms]
    counts = [0, *(bisect_right(times_ms, end_ms) for end_ms in ends_ms)]
    bins = zip(pairwise(counts), pairwise([0, *ends_ms]), strict=True)
    return array("d", (PACKET_KBIT * (n - m) / (end - begin) for (m, n), (begin, end) in bins))
