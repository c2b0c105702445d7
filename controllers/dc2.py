"""DC2, delay-aware compression control: DA1 to DA5 (Abdelmoniem & Canini, 2021, Algorithm 1).

k is the density; d, m, a and r are the monitor's last delay, minimum, average and gradient. A delay
below target means spare capacity, so k rises; above it, k falls. Defaults are Table I.
`delay_source` says where delays come from: as measured, or fed, as for Fig. 9.

The bodies of DA2 and DA3 cannot be read in the paper, and k_0 is not given. Our readings:
- the band of DA2 and DA3 is around a, and d_var is a share of it: as
  seconds, 0.05 serves neither exchanges of milliseconds nor of 20 s;
- DA2 decreases to beta k, which gives the paper's mean density; k_0 is 0.1;
- DA4 increases by k_inc as printed, not by k/2 as the text says.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.delay_source import DelaySource, Measured

NEGLIGIBLE_S = 1e-12  # a smaller delay, or difference of delays, is no divisor


@dataclass
class DelayMonitor:
    """Statistics of the delays seen (Section IV), in s. All but `minimum_s` need one `update`.

    The paper's windows d_j..d_{j-w} hold w+1 terms. Ours hold the last w delays and w differences.
    """

    window: int = 50  # w, exchanges
    minimum_s: float = field(default=float("inf"), init=False)  # m, of all delays
    _delays: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be >= 1, got {self.window}")
        self._delays = deque(maxlen=self.window + 1)

    def update(self, delay_s: float) -> None:
        """Add `delay_s`, the delay of one more exchange, and update the minimum."""
        assert delay_s >= 0
        self._delays.append(delay_s)
        self.minimum_s = min(self.minimum_s, delay_s)

    @property
    def delay_s(self) -> float:
        """The last delay d, in seconds."""
        return self._delays[-1]

    @property
    def average_s(self) -> float:
        """Mean a of the last w delays, in seconds, or of all while there are fewer."""
        recent = list(self._delays)[-self.window :]
        return sum(recent) / len(recent)

    @property
    def gradient_s(self) -> float:
        """Mean change r between successive delays, over the last w changes, in seconds."""
        differences = len(self._delays) - 1
        return (self._delays[-1] - self._delays[0]) / differences if differences else 0.0


@dataclass(kw_only=True)
class DC2(Controller, ABC):
    """Base class of DA1 to DA5: the delay monitor, the bounds, and one decision per exchange."""

    k_0: float = 0.1  # density of the first exchange, in [k_min, k_max]
    k_min: float = 0.005  # in (0, k_max]
    k_max: float = 0.3  # in [k_min, 1]
    window: int = 50  # exchanges the average and the gradient look back
    delay_source: DelaySource = field(default_factory=Measured)  # or fed
    _monitor: DelayMonitor = field(init=False, repr=False)
    _k: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check("k_max", self.k_max, 0 < self.k_max <= 1, "in (0, 1]")
        _check("k_min", self.k_min, 0 < self.k_min <= self.k_max, f"in (0, {self.k_max}] (k_max)")
        inside = self.k_min <= self.k_0 <= self.k_max
        _check("k_0", self.k_0, inside, f"in [{self.k_min}, {self.k_max}] (k_min, k_max)")
        self._monitor = DelayMonitor(self.window)
        self._k = self.k_0

    def density(self, seen: Observation | None) -> float:
        """Return the next density in [k_min, k_max], or k_0 before the first exchange."""
        if seen is not None:
            self._monitor.update(self.delay_source.delay_s(seen))
            monitor = self._monitor
            k = self._next(
                self._k, monitor.delay_s, monitor.minimum_s, monitor.average_s, monitor.gradient_s
            )
            self._k = min(self.k_max, max(self.k_min, k))
        return self._k

    def state(self) -> dict[str, float]:
        """Return the monitor's d, m, a and r in seconds. Empty before the first exchange."""
        monitor = self._monitor
        if monitor.minimum_s == float("inf"):
            return {}
        return {
            "d": monitor.delay_s,
            "m": monitor.minimum_s,
            "a": monitor.average_s,
            "r": monitor.gradient_s,
        }

    @abstractmethod
    def _next(self, k: float, d: float, m: float, a: float, r: float) -> float:
        """Return the next density before clamping, from `k` and the monitor's statistics."""


@dataclass(kw_only=True)
class DA1(DC2):
    """Controller whose density follows the delay's distance from its average."""

    def _next(self, k: float, d: float, m: float, a: float, r: float) -> float:
        if d - m < NEGLIGIBLE_S:  # the limit is +inf, or no change when all delays are equal
            return k if d == a else self.k_max
        return k - (d - a) / (d - m)


@dataclass(kw_only=True)
class _Band(DC2):
    """Base of DA2 and DA3: raise k by k_inc below a band around the mean delay, lower it above."""

    d_var: float = 0.05  # half width of the band, as a share of the average
    k_inc: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("d_var", self.d_var, self.d_var >= 0, ">= 0")
        _check("k_inc", self.k_inc, self.k_inc >= 0, ">= 0")

    def _next(self, k: float, d: float, m: float, a: float, r: float) -> float:
        margin = self.d_var * a
        if d < a - margin:
            return k + self.k_inc
        return self._decrease(k) if d > a + margin else k

    @abstractmethod
    def _decrease(self, k: float) -> float:
        """Return the density after a delay above the band."""


@dataclass(kw_only=True)
class DA2(_Band):
    """Controller with additive increase and multiplicative decrease."""

    beta: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("beta", self.beta, 0 < self.beta < 1, "in (0, 1)")

    def _decrease(self, k: float) -> float:
        return k * self.beta


@dataclass(kw_only=True)
class DA3(_Band):
    """Controller with additive increase and additive decrease."""

    k_dec: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("k_dec", self.k_dec, self.k_dec >= 0, ">= 0")

    def _decrease(self, k: float) -> float:
        return k - self.k_dec


@dataclass(kw_only=True)
class DA4(DC2):
    """TIMELY: follow the gradient of the delay, normalised by the minimum delay."""

    k_inc: float = 0.005
    beta: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("k_inc", self.k_inc, self.k_inc >= 0, ">= 0")
        _check("beta", self.beta, 0 < self.beta < 1, "in (0, 1)")

    def _next(self, k: float, d: float, m: float, a: float, r: float) -> float:
        x = r / max(m, NEGLIGIBLE_S)
        if x < 0:
            return k + self.k_inc
        return k * (1 - self.beta * x)


@dataclass(kw_only=True)
class DA5(DA4):
    """TIMELY: increase below alpha x minimum delay, decrease above alpha x mean, DA4 between."""

    alpha: float = 1.25

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("alpha", self.alpha, self.alpha >= 1, ">= 1")

    def _next(self, k: float, d: float, m: float, a: float, r: float) -> float:
        low, high = self.alpha * m, self.alpha * a
        if d < low:
            return k + self.k_inc
        if d > max(low, high):  # with alpha 1 a mean of equal delays may be rounded below them
            return k * (1 - self.beta * (d - high) / (d - low))
        return super()._next(k, d, m, a, r)


def _check(key: str, value: float, good: bool, allowed: str) -> None:
    if not good:
        raise ValueError(f"{key} must be {allowed}, got {value}")
