"""DeCo at staleness 0: periodically plan the density whose exchange takes the compute time.

After DeCo-SGD (Lu et al., 2025). We know the formula from general knowledge of the paper only.
Every few iterations DeCo plans a staleness tau and a density d with d S / B + b <= T_comp, from the
measured bandwidth B and latency b. Here the mean gradient is applied in its own step, so tau is 0
and the plan is the largest such d.
"""

from collections import deque
from dataclasses import dataclass, field

from controllers.base import Controller, Observation
from controllers.limits import check_densities, check_whole
from controllers.link_model import Link, Volume


@dataclass(kw_only=True)
class DeCo(Controller):
    """Controller with d = B (T_comp - b) / bytes per density, from means since the last plan."""

    every: int = 20  # exchanges between plans; the first follows those of start, >= 1
    d_min: float = 0.001  # in (0, d_max]
    d_max: float = 1.0  # in (0, 1]
    start: tuple[float, ...] = (0.001, 0.01)  # of the first exchanges: latency, then bandwidth
    _volume: Volume = field(default_factory=Volume, init=False, repr=False)
    _link: Link = field(default_factory=Link, init=False, repr=False)
    _since: deque[Observation] = field(default_factory=deque, init=False, repr=False)
    _exchanges: int = field(default=0, init=False, repr=False)
    _bandwidth: float = field(default=0.0, init=False, repr=False)
    _density: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        check_whole(1, every=self.every)
        check_densities(self.d_min, self.d_max, tuple(self.start))

    def density(self, seen: Observation | None) -> float:
        """Return `start` at first, then the planned density, clamped to [d_min, d_max]."""
        if seen is not None:
            self._volume.update(seen)
            self._link.update(seen.received_bytes, seen.comm_s)
            self._since.append(seen)
            self._exchanges += 1
        past_start = self._exchanges - len(self.start)
        if past_start < 0:
            return self.start[self._exchanges]
        if past_start % self.every == 0:
            self._plan()
        return self._density

    def state(self) -> dict[str, float]:
        """Return bandwidth (bytes/s) and latency (s) of the last plan, once planned."""
        if not self._density:
            return {}
        return {"bandwidth": self._bandwidth, "latency": self._link.latency_s}

    def _plan(self) -> None:
        latency_s = self._link.latency_s
        transfer_s = sum(self._link.transfer_s(seen.comm_s) for seen in self._since)
        received = sum(seen.received_bytes for seen in self._since)
        compute_s = sum(seen.compute_s for seen in self._since) / len(self._since)
        self._bandwidth = received / transfer_s
        budget_bytes = self._bandwidth * max(0.0, compute_s - latency_s)
        self._density = min(self.d_max, max(self.d_min, self._volume.density(budget_bytes)))
        self._since.clear()
