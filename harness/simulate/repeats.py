"""Exchanges done again from what they did: gradients of replay mean nothing, and cost the most."""

from dataclasses import dataclass, field
from typing import NamedTuple

from harness.simulate.workers import Act

SETTLING = 4  # exchanges: what is compiled, fetched and allocated once is no part of the others
MOST_KEPT = 64  # densities


class Done(NamedTuple):
    """What became of one bucket."""

    acts: list[Act]
    sent_bytes: int
    received_bytes: int


@dataclass
class Repeats:
    """Remembers `after` exchanges at each density; from then on they come again in turn. 0: none.

    Exact for methods whose turns divide it, as 12 has most of (ACP-SGD: 2; COVAP: its interval, if
    that is 1, 2, 3, 4, 6 or 12); of others the mean is near.
    """

    after: int
    _kept: dict[float, list[list[Done]]] = field(default_factory=dict, init=False)
    _turns: dict[float, int] = field(default_factory=dict, init=False)
    _seen: int = field(default=0, init=False)
    _now: list[Done] | None = field(default=None, init=False)  # that are repeated
    _record: list[Done] = field(default_factory=list, init=False)

    def begin(self, density: float) -> None:
        """An exchange at this density begins."""
        self._now, self._record = None, []
        self._seen += 1
        if not self.after or self._seen <= SETTLING:
            return
        if density not in self._kept and len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        kept = self._kept.setdefault(density, [])
        if len(kept) == self.after:
            turn = self._turns.get(density, 0)
            self._now, self._turns[density] = kept[turn % self.after], turn + 1
        else:
            kept.append(self._record)

    def of(self, index: int) -> Done | None:
        """What bucket `index` is to do again; None: it is to be exchanged."""
        return self._now[index] if self._now is not None else None

    def add(self, done: Done) -> None:
        self._record.append(done)
