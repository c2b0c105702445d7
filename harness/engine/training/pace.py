"""When gradients may leave: as computed, or at the published times of the emulated device."""

from dataclasses import dataclass
from typing import Protocol

from harness.engine.exchange.stats import Release


class Pace(Protocol):
    """Decides how long a step's computation takes."""

    def release(self, begin: float) -> Release | None:
        """For a step whose computation began at `begin` on the clock; None: as soon as computed."""
        ...


@dataclass(frozen=True)
class MeasuredPace:
    """Computation takes what it takes."""

    def release(self, begin: float) -> Release | None:
        return None


@dataclass(frozen=True)
class Paced:
    """Backward has come to a bucket when it would have on the emulated device.

    The real computation has to fit inside; `Exchanged.late_s` says by how much it did not.
    Forward, batch and optimizer step share `forward_s`; both times are in real seconds, dilated.
    """

    forward_s: float
    backward_s: float

    def release(self, begin: float) -> Release | None:
        return lambda share: begin + self.forward_s + share * self.backward_s
