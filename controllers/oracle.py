"""Oracle: a controller that knows the profile, and so the rate of the coming exchange.

Ours, as a bound for controllers. It decides like Pace, or like Hide with `eps: null`. It uses the
mean rate of the slowest link over the coming hiding window: the minimum over nodes and ways of rate
x 0.956, shared fairly with competing flows (1 of flows + 1). Latency is the profile's
delay of a ring's P - 1 hops, plus what past exchanges took beyond that and the known rate.

The oracle is greedy: it plans one exchange at a time and ignores the next change of the rate. It
only learns what else a network loses (slow starts, queues). So it bounds what a better estimate of
the rate can gain, not what a better plan could. The regret of a controller is its time to the
target over the oracle's, with the same seed. Use it on a star, whose links follow the profile.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

from controllers.base import Controller, Observation
from controllers.errors import Errors
from controllers.limits import check, check_above, check_densities, check_share, check_whole
from controllers.link_model import LEAST_TRANSFER, NEGLIGIBLE_S, Hiding, Volume
from controllers.pace import tried

BYTES_PER_MBIT = 125_000
PAYLOAD_SHARE = 0.956  # of a link's rate: TCP's at 1500-byte packets
SAMPLES = 5  # looks at the profile over a hiding window
MEMORY = 40  # errors of predictions kept, as many as Pace keeps
OVERHEADS = 25  # exchanges whose latency beyond the profile's tells the next one's


@dataclass(kw_only=True)
class Oracle(Controller):
    """Controller that chooses the density from the network's real `profile`.

    `profile` has link(time_s, node, way) and flows(time_s), in emulated seconds and Mbit/s.
    """

    profile: Any
    workers: int
    workers_per_node: int = 1
    eps: float | None = 0.18  # elasticity of progress in the density, > 0; None: hide
    margin: float = 0.95  # where it hides: share of the hiding window to fill, in (0, 1]
    d_min: float = 0.0005  # in (0, d_max]
    d_max: float = 1.0  # in (0, 1]
    spacing: float = 1.17  # ratio of neighbouring densities tried, > 1
    start: float = 0.001  # of the first exchange, which tells compute and bytes per density
    _volume: Volume = field(init=False, repr=False)
    _hiding: Hiding = field(init=False, repr=False)
    _errors: Errors = field(init=False, repr=False)
    _overheads: deque[float] = field(init=False, repr=False)
    _known: tuple[float, float] = field(default=(0.0, 0.0), init=False, repr=False)

    def __post_init__(self) -> None:
        check("profile", self.profile, hasattr(self.profile, "link"), "a network profile")
        check_whole(1, workers=self.workers, workers_per_node=self.workers_per_node)
        check_share(margin=self.margin)
        check_densities(self.d_min, self.d_max, (self.start,))
        check_above(1, spacing=self.spacing)
        if self.eps is not None:
            check_above(0, eps=self.eps)
        self._volume, self._hiding = Volume(), Hiding()
        self._errors, self._overheads = Errors(MEMORY), deque(maxlen=OVERHEADS)

    @cached_property
    def _tried(self) -> list[float]:
        return tried(self.d_min, self.d_max, self.spacing)

    def density(self, seen: Observation | None) -> float:
        """Return `start` at first, then the chosen density, clamped to [d_min, d_max]."""
        if seen is None:
            return self.start
        self._learn(seen)
        self._known = self._conditions(seen)
        rate, hops_s = self._known
        latency_s = hops_s + median(self._overheads)
        if self.eps is None:
            free_s = max(0.0, self.margin * self._hiding.window_s - latency_s)
            return min(self.d_max, max(self.d_min, self._volume.density(free_s * rate)))
        base_s, eps = seen.compute_s + seen.compress_s + NEGLIGIBLE_S, self.eps

        def speed(d: float) -> float:
            transfer_s = self._volume.bytes(d) / rate
            return d**eps / (base_s + self._errors.exposed_s(self._hiding, latency_s, transfer_s))

        return max(self._tried, key=speed)

    def state(self) -> dict[str, float]:
        """Return known rate (bytes/s), latency and window (s). Empty before the first exchange."""
        if not self._overheads:
            return {}
        rate, hops_s = self._known
        latency_s = hops_s + median(self._overheads)
        return {"rate": rate, "latency": latency_s, "window": self._hiding.window_s}

    def _learn(self, seen: Observation) -> None:
        self._volume.update(seen)
        self._hiding.update(seen)
        rate, hops_s = self._known
        if not rate:  # the first exchange: it was not asked for
            rate, hops_s = self._conditions(replace(seen, time_s=seen.time_s - seen.compute_s))
        expected_s = seen.received_bytes / rate
        self._overheads.append(max(0.0, seen.comm_s - hops_s - expected_s))
        if expected_s > NEGLIGIBLE_S:
            taken_s = seen.comm_s - hops_s - median(self._overheads)
            self._errors.add(max(taken_s, LEAST_TRANSFER * seen.comm_s) / expected_s)

    def _conditions(self, seen: Observation) -> tuple[float, float]:
        """Return mean rate (bytes/s) over the next hiding window, and the hops' latency (s)."""
        window_s = self._hiding.window_s
        begin_s = seen.time_s + max(0.0, seen.compute_s - seen.overlap_window_s)
        times_s = [begin_s + (i + 0.5) / SAMPLES * window_s for i in range(SAMPLES)]
        return sum(map(self._rate, times_s)) / SAMPLES, self._hops_s(times_s[0])

    def _rate(self, time_s: float) -> float:
        """Return the slowest link's payload rate at `time_s` in bytes/s, shared with flows."""
        share = PAYLOAD_SHARE * BYTES_PER_MBIT / (1 + self.profile.flows(time_s))
        return share * min(link.rate_mbit for link in self._links(time_s, ("up", "down")))

    def _hops_s(self, time_s: float) -> float:
        """Return the delay of P - 1 hops at `time_s`, each over the slowest up- and downlink."""
        slowest_ms = [max(link.delay_ms for link in self._links(time_s, (way,)))
                      for way in ("up", "down")]  # fmt: skip
        return (self.workers - 1) * sum(slowest_ms) / 1000

    def _links(self, time_s: float, ways: tuple[str, ...]) -> list[Any]:
        nodes = range(max(1, self.workers // self.workers_per_node))
        return [self.profile.link(time_s, node, way) for node in nodes for way in ways]
