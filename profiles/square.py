"""A square wave: the rate alternates between two values, beginning with the high one."""

from dataclasses import dataclass

from profiles.limits import check_lasting, check_mbit, check_order, is_number
from profiles.rated import Rated


@dataclass(frozen=True)
class Square(Rated):
    """Profile that alternates between two rates, equal for all nodes."""

    high_mbit: float
    low_mbit: float  # <= high_mbit
    period_s: float
    duty: float = 0.5  # share of a period at high_mbit, in (0, 1)

    def __post_init__(self) -> None:
        check_mbit(high_mbit=self.high_mbit, low_mbit=self.low_mbit)
        check_order(low_mbit=self.low_mbit, high_mbit=self.high_mbit)
        check_lasting(period_s=self.period_s)
        if not (is_number(self.duty) and 0 < self.duty < 1):
            raise ValueError(f"duty must be a number in (0, 1), got {self.duty!r}")
        super().__post_init__()

    def mbit(self, time_s: float, node: int) -> float:
        high = time_s % self.period_s < self.duty * self.period_s
        return self.high_mbit if high else self.low_mbit

    def range_mbit(self) -> tuple[float, float]:
        return self.low_mbit, self.high_mbit
