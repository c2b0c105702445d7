"""NetSenseML's estimates of the path, after BBR (Wang et al., 2025).

Each exchange is a sample. Its bytes over its time estimate the bottleneck bandwidth (EBB), and
BtlBw is the largest estimate. RTprop is the shortest time. Their product is the bandwidth-delay
product, BDP. The paper names no window. `window` None uses all samples.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

BBR = "bbr"
BBR_EXCHANGES, BBR_S = 10, 10.0  # of BBR's maximum and minimum (Cardwell et al., 2016)
NEGLIGIBLE_S = 1e-12  # a shorter time is no divisor


class Sample(NamedTuple):
    """One exchange in the monitor's window."""

    time_s: float  # when it ended
    rtt_s: float
    ebb: float  # bytes/s


@dataclass
class PathMonitor:
    """Estimates of the path. All but `shortest_s` need one `update`."""

    window: Final[int | str | None] = None  # None: all exchanges; n: the last n; bbr: as BBR does
    size_bytes: int = field(default=0, init=False)  # of the last exchange
    ebb: float = field(default=0.0, init=False)  # bytes/s, of the last exchange
    btlbw: float = field(default=0.0, init=False)  # bytes/s, the largest EBB of the window
    rtprop_s: float = field(default=float("inf"), init=False)  # the shortest time of the window
    shortest_s: float = field(default=float("inf"), init=False)  # the shortest time of all
    _samples: deque[Sample] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counted = type(self.window) is int and self.window >= 1
        if not (counted or self.window in (None, BBR)):
            raise ValueError(
                f"window must be null, bbr or a whole number >= 1, got {self.window!r}"
            )
        self._samples = deque()

    def update(self, time_s: float, size_bytes: int, rtt_s: float) -> None:
        """Add an exchange of `size_bytes` that ended at `time_s` and took `rtt_s`."""
        rtt_s = max(rtt_s, NEGLIGIBLE_S)
        self.size_bytes, self.ebb = size_bytes, size_bytes / rtt_s
        self.shortest_s = min(self.shortest_s, rtt_s)
        if self.window is None:
            self.btlbw, self.rtprop_s = max(self.btlbw, self.ebb), self.shortest_s
            return
        self._samples.append(Sample(time_s, rtt_s, self.ebb))
        fast, short = self._in_window()
        self.btlbw = max(sample.ebb for sample in fast)
        self.rtprop_s = min(sample.rtt_s for sample in short)

    @property
    def bdp_bytes(self) -> float:
        """The bandwidth-delay product in bytes."""
        return self.btlbw * self.rtprop_s

    def _in_window(self) -> tuple[list[Sample], list[Sample]]:
        """Return the samples within the window, and forget older ones."""
        samples = self._samples
        if isinstance(self.window, int):
            while len(samples) > self.window:
                samples.popleft()
            return list(samples), list(samples)
        oldest_s = samples[-1].time_s - BBR_S
        while len(samples) > BBR_EXCHANGES and samples[0].time_s < oldest_s:
            samples.popleft()
        recent = [sample for sample in samples if sample.time_s >= oldest_s]
        return list(samples)[-BBR_EXCHANGES:], recent
