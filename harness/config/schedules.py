"""Learning-rate schedules: factors on the base rate, as pure functions of a run's progress."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Schedule(Protocol):
    """A choice of `optimizer.schedule`."""

    def factor(self, step: int, steps: int) -> float:
        """Return the factor on the base rate in `step`, which counts from 0 to `steps` - 1."""
        ...


def _in_unit(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"schedule {name} must be in [0, 1], got {value}")


@dataclass(frozen=True)
class Constant:
    """Schedule that keeps the base rate throughout."""

    def factor(self, step: int, steps: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Steps:
    """Schedule that multiplies the rate by `gamma` at each milestone, a fraction of the run."""

    milestones: Sequence[float]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        for milestone in self.milestones:
            _in_unit("milestones", milestone)
        _in_unit("gamma", self.gamma)

    def factor(self, step: int, steps: int) -> float:
        return self.gamma ** sum(step >= round(share * steps) for share in self.milestones)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to `floor` (Loshchilov and Hutter, 2017, without restarts)."""

    floor: float = 0.0

    def __post_init__(self) -> None:
        _in_unit("floor", self.floor)

    def factor(self, step: int, steps: int) -> float:
        left = (1 + math.cos(math.pi * step / steps)) / 2
        return self.floor + (1 - self.floor) * left


@dataclass(frozen=True)
class Polynomial:
    """Decay from 1 to `floor` by the remaining fraction of the run to `power`; 1 is linear."""

    power: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not self.power > 0:
            raise ValueError(f"schedule power must be > 0, got {self.power}")
        _in_unit("floor", self.floor)

    def factor(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 - step / steps) ** self.power


@dataclass(frozen=True)
class WarmUp:
    """Linear rise from `start` to 1 over the first `share` of the run, times schedule `then`.

    `then` sees the progress of the whole run, so the warm-up does not shift its milestones.
    """

    share: float
    then: Schedule = field(default_factory=Constant)
    start: float = 0.0

    def __post_init__(self) -> None:
        _in_unit("share", self.share)
        _in_unit("start", self.start)

    def factor(self, step: int, steps: int) -> float:
        done = min(1.0, (step + 1) / max(1, round(self.share * steps)))
        return (self.start + (1 - self.start) * done) * self.then.factor(step, steps)


@dataclass(frozen=True)
class InverseSqrt:
    """Linear rise from 0 to 1 over the first `warmup` steps, then sqrt(warmup / step).

    This is the schedule of Vaswani et al. (2017), section 5.3, with the base rate as its peak.
    """

    warmup: int

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise ValueError(f"schedule warmup must be >= 1 step, got {self.warmup}")

    def factor(self, step: int, steps: int) -> float:
        done = step + 1
        return min(done / self.warmup, math.sqrt(self.warmup / done))
