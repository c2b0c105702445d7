"""A network that loses rate at fixed intervals, as in NetSenseML (2025): 2000 to 200 Mbit/s."""

from dataclasses import dataclass

from profiles.base import Link
from profiles.limits import check_above_zero, check_path


@dataclass(frozen=True)
class Degrading:
    """All nodes alike: `start_mbit`, less `step_mbit` after every `step_s`, down to `end_mbit`."""

    start_mbit: float
    end_mbit: float  # in (0, start_mbit]; kept once it is reached
    step_mbit: float
    step_s: float
    delay_ms: float = 0.0  # one way
    jitter_ms: float = 0.0
    loss: float = 0.0  # share of packets, in [0, 1)

    def __post_init__(self) -> None:
        check_above_zero(start_mbit=self.start_mbit, end_mbit=self.end_mbit)
        check_above_zero(step_mbit=self.step_mbit, step_s=self.step_s)
        check_path(self.delay_ms, self.jitter_ms, self.loss)
        if self.end_mbit > self.start_mbit:
            raise ValueError(
                f"end_mbit must be in (0, {self.start_mbit}] (start_mbit), got {self.end_mbit}"
            )

    def link(self, time_s: float, node: int) -> Link:
        steps = max(0.0, time_s) // self.step_s
        rate = max(self.end_mbit, self.start_mbit - steps * self.step_mbit)
        return Link(rate, self.delay_ms, self.jitter_ms, self.loss)

    def flows(self, time_s: float) -> int:
        return 0

    def range_mbit(self) -> tuple[float, float]:
        return self.end_mbit, self.start_mbit
