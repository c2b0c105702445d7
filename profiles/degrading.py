"""A network whose rate falls at fixed intervals, as in NetSenseML (2025): 2000 to 200 Mbit/s."""

from dataclasses import dataclass

from profiles.limits import check_lasting, check_mbit, check_order
from profiles.rated import Rated


@dataclass(frozen=True)
class Degrading(Rated):
    """Profile that falls from `start_mbit` by `step_mbit` each `step_s` to `end_mbit`."""

    start_mbit: float
    end_mbit: float  # in (0, start_mbit]; kept once it is reached
    step_mbit: float
    step_s: float

    def __post_init__(self) -> None:
        check_mbit(start_mbit=self.start_mbit, end_mbit=self.end_mbit, step_mbit=self.step_mbit)
        check_lasting(step_s=self.step_s)
        check_order(end_mbit=self.end_mbit, start_mbit=self.start_mbit)
        super().__post_init__()

    def mbit(self, time_s: float, node: int) -> float:
        return max(self.end_mbit, self.start_mbit - time_s // self.step_s * self.step_mbit)

    def range_mbit(self) -> tuple[float, float]:
        return self.end_mbit, self.start_mbit
