"""Repetition of recorded exchanges: gradients of a replay mean nothing and cost the most."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.virtual.lanes import LaneOp

SETTLING = 4  # exchanges that compile, fetch and allocate, which later ones do not
MOST_KEPT = 64  # densities
Kind = tuple[float, int, str]  # of an exchange: its density, how many buckets, and their first


class RecordedExchange(NamedTuple):
    """Recorded exchange of one bucket."""

    ops: list[LaneOp]
    sent_bytes: int
    received_bytes: int


@dataclass
class ExchangeCache:
    """Record of `after` exchanges at each density, which are then repeated in turn. 0 records none.

    It is exact for methods whose period divides `after`. 12 suits most: two alternating factors, or
    an interval of 1, 2, 3, 4, 6 or 12. For other methods the mean is close.
    """

    after: int
    _kept: dict[Kind, list[list[RecordedExchange]]] = field(default_factory=dict, init=False)
    _turns: dict[Kind, int] = field(default_factory=dict, init=False)
    _seen: int = field(default=0, init=False)
    _now: list[RecordedExchange] | None = field(default=None, init=False)  # that are repeated
    _record: list[RecordedExchange] = field(default_factory=list, init=False)

    def begin(self, density: float, buckets: Sequence[Sequence[str]]) -> None:
        """Begin an exchange at this density. `buckets` lists the names of their parameters."""
        self._now, self._record = None, []
        self._seen += 1
        if not self.after or self._seen <= SETTLING:
            return
        kind = density, len(buckets), buckets[0][0]
        if kind not in self._kept and len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        kept = self._kept.setdefault(kind, [])
        if len(kept) == self.after:
            turn = self._turns.get(kind, 0)
            self._now, self._turns[kind] = kept[turn % self.after], turn + 1
        else:
            kept.append(self._record)

    def of(self, index: int) -> RecordedExchange | None:
        """Return the recorded exchange that bucket `index` repeats, or None to exchange it."""
        return self._now[index] if self._now is not None else None

    def add(self, done: RecordedExchange) -> None:
        self._record.append(done)
