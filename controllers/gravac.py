"""GraVAC: the density with the most gain per second, found by halving (Tyagi & Swany, 2023).

After the paper and its public code. The gain of a density is |sent| / |g|, and its compression
throughput is samples per second times gain. The search starts at the least compression and halves
the density while the gain stays above a threshold and the throughput rises by more than omega. The
controller keeps the result. If its gain falls below the threshold later, training returns to the
least compression for a stretch, and to dense exchanges if that gain is too low as well.

Their code compresses with both candidates in every step. Here one exchange has one density, so a
gain is the mean of a stretch, and each stretch decides on the next. We do not copy two details of
their code: the jump from the first to the last ratio, and the gain of one ratio taken from another
ratio's tensors. As in their code, a finished search does not restart, so it misses later changes
of the link.
"""

from dataclasses import dataclass, field
from math import isfinite, sqrt

from controllers.base import Controller, Observation
from controllers.limits import check, check_densities, check_share, check_whole

DENSE = 1.0


@dataclass(kw_only=True)
class GraVAC(Controller):
    needs_norms = True
    d_min: float = 0.001  # most compression, in (0, d_max]
    d_max: float = 0.1  # least compression, in (0, 1]
    window: int = 25  # exchanges of a stretch, >= 1
    gain: float = 0.7  # least |sent| / |g|, in (0, 1]
    omega: float = 0.01  # least relative rise of the compression throughput, in (0, 1]
    _used: float = field(init=False, repr=False)  # density of this stretch
    _found: float | None = field(default=None, init=False, repr=False)  # None: still searching
    _best: tuple[float, float] | None = field(default=None, init=False, repr=False)
    _gains: list[float] = field(default_factory=list, init=False, repr=False)
    _seconds: float = field(default=0.0, init=False, repr=False)
    _last: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_densities(self.d_min, self.d_max, (self.d_max,))
        check_whole(1, window=self.window)
        check_share(gain=self.gain, omega=self.omega)
        check("d_max", self.d_max, self.d_max < DENSE, "below 1, the density to fall back on")
        self._used = self.d_max

    def density(self, seen: Observation | None) -> float:
        """Return the density of the next exchange, in [d_min, d_max], or 1."""
        if seen is None:
            return self._used
        self._gains.append(sqrt(seen.gain) if isfinite(seen.gain) else 0.0)
        self._seconds += seen.compute_s + seen.compress_s + seen.exposed_s
        if len(self._gains) == self.window:
            gain = sum(self._gains) / self.window
            throughput = gain * self.window / self._seconds if self._seconds else 0.0
            self._last = {"gain": gain, "throughput": throughput}
            self._used = self._next(gain, throughput)
            self._gains, self._seconds = [], 0.0
        return self._used

    def state(self) -> dict[str, float]:
        """Return gain and compression throughput (steps/s) of the last stretch that ended."""
        return self._last

    def _next(self, gain: float, throughput: float) -> float:
        """Return the density of the next stretch."""
        if self._found is not None:
            return self._kept(gain)
        best = self._best
        rises = best is None or throughput > best[0] * (1 + self.omega)
        if gain < self.gain or not rises:
            self._found = best[1] if best else self.d_max
            return self._found if best else DENSE
        self._best = (throughput, self._used)
        if self._used <= self.d_min:
            self._found = self._used
        return max(self.d_min, self._used / 2)

    def _kept(self, gain: float) -> float:
        """Return the density after the search, or a fallback for a stretch of too low a gain."""
        assert self._found is not None
        if gain >= self.gain:
            return self._found
        return self.d_max if self._used < self.d_max else DENSE
