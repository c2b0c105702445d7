"""NetSenseML: send about the bandwidth-delay product, by AIMD (Wang et al., 2025, Algorithm 1).

The paper's ratio is our density. The data size of an exchange is the bytes received, and its RTT is
the time it takes. BtlBw, RTprop and BDP follow from these. At start-up the ratio rises by beta_1
per exchange. Later it is halved after an exchange above 0.9 BDP, and rises by beta_2 after any
other.

This RTT includes the transfer: L + size / rate. So BDP is close to the smallest exchange seen, and
the printed rule keeps the ratio at its floor unless L is the larger part. Published throughputs fit
that. `bdp_gain` above 1 lifts the ratio, so that an exchange has a multiple of the smallest one's
bytes, whatever the rate (benchmarks/netsense.py). The test is then `size > 0.9 bdp_gain BDP`.

The paper leaves open, and we chose:
- beta_1 is 0.05. Start-up ends when an exchange takes twice the shortest seen, at ratio 1, or after
  20 exchanges; the ratio then stays for one exchange. Retransmitted segments are not counted;
- BtlBw and RTprop are over all exchanges, including those of start-up (`window`);
- workers agree on the smallest ratio (`controller.agree: min`) and continue from it.
"""

from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import (
    check,
    check_above,
    check_at_least,
    check_share,
    check_whole,
    is_number,
)
from controllers.path_monitor import PathMonitor


@dataclass(kw_only=True)
class NetSense(Controller):
    """Controller with estimates of the path and a phase: start-up, then sensing."""

    ratio_0: float = 0.01  # of the first exchange, in [floor, 1]
    floor: float = 0.005  # in (0, 1]
    beta_1: float = 0.05  # added per exchange at start-up, >= 0
    beta_2: float = 0.01  # added per exchange from then on, >= 0
    alpha: float = 0.5  # factor after an exchange that was too large, in (0, 1)
    bdp_share: float = 0.9  # of the BDP that may be used, > 0
    bdp_gain: float = 1.0  # multiplies the BDP; 1: as published
    window: int | str | None = None  # None: all; n: the last n; bbr: max of 10, min of 10 s
    startup_steps: int = 20  # exchanges of start-up at most, >= 1
    startup_rtt: float = 2.0  # it ends above this multiple of the shortest RTT, >= 1
    _path: PathMonitor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_share(floor=self.floor)
        good = is_number(self.ratio_0) and self.floor <= self.ratio_0 <= 1
        check("ratio_0", self.ratio_0, good, f"in [{self.floor}, 1]")
        check_at_least(0, beta_1=self.beta_1, beta_2=self.beta_2)
        check("alpha", self.alpha, is_number(self.alpha) and 0 < self.alpha < 1, "in (0, 1)")
        check_above(0, bdp_share=self.bdp_share, bdp_gain=self.bdp_gain)
        check_whole(1, startup_steps=self.startup_steps)
        check_at_least(1, startup_rtt=self.startup_rtt)
        self._path = PathMonitor(self.window)
        self._startup_left: int = self.startup_steps

    def density(self, seen: Observation | None) -> float:
        """Return the ratio of the next exchange in [floor, 1], or ratio_0 before the first."""
        if seen is None:
            return self.ratio_0
        self._path.update(seen.time_s, seen.received_bytes, seen.comm_s)
        return self._start_up(seen) if self._startup_left else self._sense(seen.density)

    def state(self) -> dict[str, float]:
        """Return BtlBw and EBB (bytes/s), RTprop (s), BDP (bytes), sensing (0, 1); {} at first."""
        path = self._path
        if path.rtprop_s == float("inf"):
            return {}
        return {
            "EBB": path.ebb,
            "BtlBw": path.btlbw,
            "RTprop": path.rtprop_s,
            "BDP": path.bdp_bytes,
            "sensing": float(self._startup_left == 0),
        }

    def _start_up(self, seen: Observation) -> float:
        """Return the next ratio of start-up; leave start-up when a signal ends it."""
        self._startup_left -= 1
        if (
            seen.comm_s > self.startup_rtt * self._path.shortest_s
            or seen.density >= 1
            or self._startup_left == 0
        ):
            self._startup_left = 0
            return seen.density
        return min(1.0, seen.density + self.beta_1)

    def _sense(self, ratio: float) -> float:
        """Return a halved ratio if the exchange exceeded the path's capacity, else a larger one."""
        path = self._path
        if path.size_bytes > self.bdp_share * self.bdp_gain * path.bdp_bytes:
            return max(self.floor, self.alpha * ratio)
        return min(1.0, ratio + self.beta_2)
