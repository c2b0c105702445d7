"""Statistics of delays on which DC2 decides (Abdelmoniem & Canini, 2021, Section IV)."""

from collections import deque
from dataclasses import dataclass, field


@dataclass
class DelayMonitor:
    """Statistics of the delays seen, in seconds. All but `minimum_s` need one `update`.

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
