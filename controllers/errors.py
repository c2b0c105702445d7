"""The relative errors of the last predictions, and what they make of the next exchange."""

from bisect import bisect_right
from collections import deque
from itertools import accumulate

from controllers.link_model import Hiding


class Errors:
    """Actual over predicted transfer of the last `memory` exchanges, and one of 1 to begin with."""

    def __init__(self, memory: int) -> None:
        self._last: deque[float] = deque([1.0], maxlen=memory)
        self._sort()

    def add(self, error: float) -> None:
        self._last.append(error)
        self._sort()

    def _sort(self) -> None:
        self._sorted = sorted(self._last)
        self._sums = [0.0, *accumulate(self._sorted)]  # of the smallest 0, 1, 2, ...

    def exposed_s(self, hiding: Hiding, latency_s: float, transfer_s: float) -> float:
        """Mean over the errors e of max(w T, T - h) with T = a + e `transfer_s`.

        T - h is the larger of the two from some e on; sums of the errors below and above it do.
        """
        w, h = hiding.exposed_share, hiding.window_s
        count = len(self._sorted)
        if transfer_s > 0 and w < 1:
            below = bisect_right(self._sorted, (h / (1 - w) - latency_s) / transfer_s)
        else:
            below = count if w == 1 or (1 - w) * latency_s <= h else 0
        low = below * latency_s + self._sums[below] * transfer_s
        high = (count - below) * (latency_s - h)
        high += (self._sums[-1] - self._sums[below]) * transfer_s
        return (w * low + high) / count

    def state(self) -> dict[str, float]:
        """The last error."""
        return {"error": self._last[-1]}
