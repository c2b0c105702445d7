"""Pacing of computation: release gradients when computed, or when an emulated device would."""

from dataclasses import dataclass
from typing import Protocol

from harness.engine.exchange.stats import Release


class Pace(Protocol):
    """Rule for how long the computation of a step takes."""

    def release(self, begin: float) -> Release | None:
        """Return the release of a step that began at clock time `begin`, or None for no pacing."""
        ...


@dataclass(frozen=True)
class MeasuredPace:
    """No pacing: computation takes its real time."""

    def release(self, begin: float) -> Release | None:
        return None


@dataclass(frozen=True)
class Paced:
    """Pace that releases each gradient when the emulated device would have computed it.

    The real computation must be faster. `Exchanged.late_s` reports by how much it was not.
    `forward_s` covers forward, batch and optimizer step. Both times are in real seconds (dilated).
    """

    forward_s: float
    backward_s: float

    def release(self, begin: float) -> Release | None:
        return lambda share: begin + self.forward_s + share * self.backward_s
