"""A network that changes at given times: a list of rates, and the times at which each begins."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from profiles.limits import MOST_S, as_tuple, check_between, check_mbit
from profiles.rated import Rated


@dataclass(frozen=True)
class Steps(Rated):
    """Profile that changes its rate at given times, equal for all nodes."""

    steps: tuple[tuple[float, float], ...]  # [time_s, rate_mbit] pairs; the first time is 0
    repeat_s: float | None = None  # start over after this long; None: keep the last rate
    _starts_s: list[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pairs = as_tuple("steps", self.steps, "[time_s, rate_mbit] pairs")
        steps = tuple(_pair(f"steps[{place}]", pair) for place, pair in enumerate(pairs))
        for place, (time_s, _) in enumerate(steps):
            if place == 0 and time_s != 0:
                raise ValueError(f"steps[0] must begin at time_s 0, got {time_s}")
            if place and time_s <= steps[place - 1][0]:
                after_s = steps[place - 1][0]
                raise ValueError(f"steps[{place}] must begin after {after_s} s, got {time_s}")
        last_s = steps[-1][0]
        if self.repeat_s is not None:
            check_between(0, MOST_S, repeat_s=self.repeat_s)
            if self.repeat_s <= last_s:
                raise ValueError(
                    f"repeat_s must be above {last_s}, where the last step begins, "
                    f"got {self.repeat_s}"
                )
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "_starts_s", [time_s for time_s, _ in steps])
        super().__post_init__()

    def mbit(self, time_s: float, node: int) -> float:
        at_s = time_s if self.repeat_s is None else time_s % self.repeat_s
        return self.steps[bisect_right(self._starts_s, at_s) - 1][1]

    def range_mbit(self) -> tuple[float, float]:
        rates = [rate for _, rate in self.steps]
        return min(rates), max(rates)


def _pair(key: str, value: Any) -> tuple[float, float]:
    pair = as_tuple(key, value, "time_s and rate_mbit")
    if len(pair) != 2:
        raise ValueError(f"{key} must be a list of time_s and rate_mbit, got {list(pair)}")
    check_between(0, MOST_S, **{f"{key}: time_s": pair[0]})
    check_mbit(**{f"{key}: rate_mbit": pair[1]})
    return pair[0], pair[1]
