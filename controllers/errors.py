"""Relative errors of recent predictions, used to weigh the outcomes of the next exchange."""

from bisect import bisect_right
from collections import deque
from functools import cached_property
from itertools import accumulate

from controllers.link_model import Hiding


class Errors:
    """Ratios of actual to predicted transfer time of the last `memory` exchanges, at first 1."""

    _last: deque[float]

    def __init__(self, memory: int) -> None:
        self._last = deque([1.0], maxlen=memory)

    def add(self, error: float) -> None:
        """Keep `error`, the actual over the predicted transfer time of an exchange."""
        self._last.append(error)
        self.__dict__.pop("_sorted_and_sums", None)

    @cached_property
    def _sorted_and_sums(self) -> tuple[list[float], list[float]]:
        """The errors in ascending order, and the sums of the smallest 0, 1, 2, ..."""
        errors = sorted(self._last)
        return errors, [0.0, *accumulate(errors)]

    def exposed_s(self, hiding: Hiding, latency_s: float, transfer_s: float) -> float:
        """Return the mean of max(w T, T - h) over errors e, where T = a + e `transfer_s`.

        T - h is the larger term from some e on, so sums of the sorted errors on both sides suffice.
        """
        w, h = hiding.exposed_share, hiding.window_s
        errors, sums = self._sorted_and_sums
        count = len(errors)
        if transfer_s > 0 and w < 1:
            below = bisect_right(errors, (h / (1 - w) - latency_s) / transfer_s)
        else:
            below = count if w == 1 or (1 - w) * latency_s <= h else 0
        low = below * latency_s + sums[below] * transfer_s
        high = (count - below) * (latency_s - h)
        high += (sums[-1] - sums[below]) * transfer_s
        return (w * low + high) / count

    def state(self) -> dict[str, float]:
        """Return the last error."""
        return {"error": self._last[-1]}
