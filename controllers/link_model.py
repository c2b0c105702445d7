"""Model of the next exchange's time, learned by one worker from the previous exchanges.

An exchange of b bytes takes T = a + b / r seconds, and backward hides all but max(w T, T - h).
These are the quantities and how they are estimated:
- b, the bytes received at density d, is a line through the mean of recent exchanges below density
  1. So nothing is assumed about the compressor (indices, bits, ranks, intervals). The slope is the
  steepest of recent pairs of consecutive exchanges with sufficiently different densities, limited
  to between half and all of bytes / density. Without the limit, a compressor whose line is flat at
  first would seem to cost the same at density 1. Density 1 itself is kept apart, since it may use
  an all-reduce instead of an all-gather.
- a is where the line through two consecutive exchanges meets zero bytes, if their bytes differ
  enough. We use the median of recent pairs, because a pair sees one state of the network. A fit
  over longer times would mistake the controller's own answer, fewer bytes at low rates, for
  latency.
- r is the smaller of the last rate and the median of the last three. It falls at once, rises with
  the second faster exchange, and forgets a single slow one after the next.
- h and w are the hiding window and the share that is always exposed. Buckets are sent one by one,
  and the last is ready only when backward ends. So the hidden time (delay - exposed) does not
  measure h: with a tenth of the bytes in the last bucket it is 0.9 T for every T, and a controller
  that aims below it would send less each time. Instead h is overlap_window_s, from the first bucket
  to the end of backward, less the time that compression takes on the same thread. w is exposed /
  delay over exchanges whose exposure clearly exceeds T - h. Both are moving averages.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median, median_low

from controllers.base import Observation

RECENT = 8  # exchanges whose bytes tell those of a density
RATES = 3  # exchanges whose rates tell the rate
PAIRS = 9  # pairs of exchanges that give latency and the fixed part of the bytes
APART = 3  # times the bytes, or density, of the one in a pair are those of the other at least
FLATTEST = 0.5  # of bytes over density, the slope that is believed
CLEARLY = 1.2  # times T - h, an exposure that the window does not explain
WEIGHT = 0.1  # of the new value in moving averages
LEAST_TRANSFER = 0.1  # share of a delay that is transfer at least, so that noise in a is no rate
NEGLIGIBLE_S = 1e-9  # a shorter transfer tells no rate


@dataclass
class Volume:
    """Model of the bytes received as a function of the density, learned from exchanges."""

    per_density: float = field(default=0.0, init=False)  # bytes per unit of density, below 1
    fixed: float = field(default=0.0, init=False)  # bytes at any density below 1
    _recent: deque[tuple[float, int]] = field(init=False, repr=False)
    _slopes: deque[float] = field(init=False, repr=False)  # of pairs
    _dense: float | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._recent, self._slopes = deque(maxlen=RECENT), deque(maxlen=PAIRS)

    def update(self, seen: Observation) -> None:
        if seen.density >= 1:
            self._dense = float(seen.received_bytes)
        else:
            self._pair((seen.density, seen.received_bytes))
        densities, received = zip(*self._recent or [(1.0, self._dense or 0.0)], strict=True)
        ratio = sum(received) / sum(densities)
        self.per_density = min(ratio, max(FLATTEST * ratio, *self._slopes or (ratio,)))
        self.fixed = (ratio - self.per_density) * sum(densities) / len(densities)

    def _pair(self, new: tuple[float, int]) -> None:
        """Add an exchange, and the slope between it and the previous one."""
        small, large = sorted((self._recent[-1] if self._recent else new, new))
        if large[0] >= APART * small[0]:
            self._slopes.append((large[1] - small[1]) / (large[0] - small[0]))
        self._recent.append(new)

    def bytes(self, density: float) -> float:
        if density >= 1 and self._dense is not None:
            return self._dense
        return self.fixed + self.per_density * density

    def density(self, budget_bytes: float) -> float:
        """Return the largest density, in [0, 1], whose bytes are within the budget."""
        if self.bytes(1.0) <= budget_bytes:
            return 1.0
        over = max(0.0, budget_bytes - self.fixed)
        return min(1.0, over / self.per_density) if self.per_density else 0.0


@dataclass
class Link:
    """Latency a and rate r of the link. Before the first exchange with bytes, bytes are free."""

    latency_s: float = field(default=0.0, init=False)  # a
    best: float = field(default=0.0, init=False)  # highest rate seen, bytes/s
    _rates: deque[float] = field(init=False, repr=False)
    _latencies: deque[float] = field(init=False, repr=False)  # of pairs
    _last: tuple[int, float] = field(default=(0, 0.0), init=False, repr=False)

    def __post_init__(self) -> None:
        self._rates, self._latencies = deque(maxlen=RATES), deque(maxlen=PAIRS)

    def update(self, received_bytes: int, comm_s: float) -> None:
        if not received_bytes:
            return
        small, large = sorted((self._last, (received_bytes, comm_s)))
        self._last = (received_bytes, comm_s)
        if small[0] and large[0] >= APART * small[0]:
            slope = (large[1] - small[1]) / (large[0] - small[0])
            self._latencies.append(min(small[1], max(0.0, small[1] - small[0] * slope)))
            self.latency_s = median_low(self._latencies)
        self._rates.append(received_bytes / self.transfer_s(comm_s))
        self.best = max(self.best, self._rates[-1])

    def transfer_s(self, comm_s: float) -> float:
        """Return the transfer part of an exchange of `comm_s`: the time above the latency, >= 0."""
        return max(comm_s - self.latency_s, LEAST_TRANSFER * comm_s, NEGLIGIBLE_S)

    @property
    def rate(self) -> float:
        """The rate r in bytes/s."""
        if not self._rates:
            return float("inf")
        return min(self._rates[-1], median(self._rates))


@dataclass
class Hiding:
    """Estimates of overlap: window h, and share w always exposed. Both are 0 before an exchange."""

    window_s: float = field(default=0.0, init=False)  # h
    exposed_share: float = field(default=0.0, init=False)  # w
    _seen: int = field(default=0, init=False, repr=False)
    _unexplained: int = field(default=0, init=False, repr=False)  # exchanges that tell w

    def update(self, seen: Observation) -> None:
        window_s = max(0.0, seen.overlap_window_s - seen.compress_s)
        self.window_s = _average(self.window_s, window_s, self._seen)
        self._seen += 1
        if seen.comm_s > 0 and seen.exposed_s > CLEARLY * (seen.comm_s - self.window_s):
            share = min(1.0, seen.exposed_s / seen.comm_s)
            self.exposed_share = _average(self.exposed_share, share, self._unexplained)
            self._unexplained += 1

    def exposed_s(self, comm_s: float) -> float:
        """Return the part of an exchange of `comm_s` that backward will not hide."""
        return max(self.exposed_share * comm_s, comm_s - self.window_s)


@dataclass
class LinkModel:
    """Models of volume, link and overlap, learned from the exchanges of one worker."""

    exchanges: int = field(default=0, init=False)  # seen so far
    volume: Volume = field(init=False)
    link: Link = field(init=False)
    hiding: Hiding = field(init=False)

    def __post_init__(self) -> None:
        self.volume, self.link, self.hiding = Volume(), Link(), Hiding()

    def update(self, seen: Observation) -> None:
        """Update all estimates with `seen`, the record of one more exchange."""
        self.exchanges += 1
        self.volume.update(seen)
        self.link.update(seen.received_bytes, seen.comm_s)
        self.hiding.update(seen)

    def transfer_s(self, density: float) -> float:
        """Return the expected delay at `density` without the latency."""
        return self.volume.bytes(density) / self.link.rate

    def state(self) -> dict[str, float]:
        """Return the parameters in emulated seconds and bytes, once an exchange had bytes."""
        if not self.link.best:
            return {}
        return {
            "rate": self.link.rate,
            "best_rate": self.link.best,
            "latency": self.link.latency_s,
            "window": self.hiding.window_s,
            "exposed_share": self.hiding.exposed_share,
            "per_density": self.volume.per_density,
            "fixed": self.volume.fixed,
        }


def _average(past: float, new: float, count: int) -> float:
    """Return the moving average over `count` values, which starts with the first value."""
    return new if count == 0 else past + WEIGHT * (new - past)
