"""Schedule of fragments: which are sent and which land after each step."""

from dataclasses import dataclass, field
from typing import NamedTuple

from harness.config.local_steps import LocalSteps


class Due(NamedTuple):
    """Fragments to send and to land after a step."""

    sends: tuple[int, ...] = ()  # fragments
    lands: tuple[int, ...] = ()
    dense: bool = False  # sent as they are
    ends: bool = False  # the round does


@dataclass
class Rounds:
    """The current round: its number, first step and length.

    Fragment p of P lands (p + 1) / P into the round, and is sent `lag` steps before. A round of the
    warm-up is one step, in which all are exchanged.
    """

    layout: LocalSteps
    number: int = field(default=0, init=False)
    first: int = field(default=0, init=False)  # step
    steps_apart: int = field(init=False)  # of this round's exchanges

    def __post_init__(self) -> None:
        self.steps_apart = self.layout.steps_apart

    @property
    def warms_up(self) -> bool:
        return self.number < self.layout.warmup_rounds

    @property
    def steps(self) -> int:
        """Number of steps in the current round."""
        return 1 if self.warms_up else self.steps_apart * self.layout.fragments

    def due(self, step: int) -> Due:
        """Return what is due after `step`, which belongs to the current round."""
        fragments = self.layout.fragments
        if self.warms_up:
            every = (*range(fragments),)
            return Due(every, every, dense=True, ends=True)
        done = step + 1 - self.first
        return Due(
            self._at(done + self.layout.lag),
            self._at(done),
            ends=done == self.steps_apart * fragments,
        )

    def _at(self, done: int) -> tuple[int, ...]:
        turn, left = divmod(done, self.steps_apart)
        return () if left or not 1 <= turn <= self.layout.fragments else (turn - 1,)

    def begin(self, step: int, steps_apart: int | None = None) -> None:
        """Begin the next round with `step`, with exchanges `steps_apart` steps apart.

        None means `h`. Exchanges are at least `lag` + 1 steps apart.
        """
        self.number, self.first = self.number + 1, step
        self.steps_apart = max(self.layout.lag + 1, steps_apart or self.layout.steps_apart)
