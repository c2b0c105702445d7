"""Relative errors of recent predictions, used to weigh the outcomes of the next exchange."""

from bisect import bisect_right
from collections import deque
from itertools import accumulate

from controllers.link_model import Hiding


class Errors:
    """Ratios of actual to predicted transfer time of the last `memory` exchanges, at first 1."""

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
        """Return the mean of max(w T, T - h) over errors e, where T = a + e `transfer_s`.

        T - h is the larger term from some e on, so sums of the sorted errors on both sides suffice.
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
        """Return the last error."""
        return {"error": self._last[-1]}
