"""Predict bounds on DC2's throughput claims (static LSTM, dynamic VGG16), as densities vary.

A sparse all-gather of density k costs each of P workers (P-1) k n entries of 12 bytes. A dense ring
all-reduce costs 2 (P-1)/P n entries of 4 bytes. A method gains most where communication takes all
the time: 2 x 4 / (12 P k), at the least density that its controller may choose (table I, k_min).
The predicted throughput is this bound. Compression is assumed to cost nothing.
"""

from collections.abc import Callable
from functools import cached_property

from harness.fidelity.measurement import Measurement
from harness.fidelity.predictor import Predictor

FLOAT_BYTES = 4


class Dc2(Predictor):
    """Predictor of the bounds on DC2's throughput claims; it predicts no other cell."""

    paper, title = "dc2", "DC2"

    @cached_property
    def _rules(self) -> dict[str, Callable[[Measurement], float | None]]:
        bed = self.bench
        entries = bed["workers"] * bed["least_density"] * bed["entry_bytes"]
        return {
            "normalized_throughput": lambda _: 2 * FLOAT_BYTES / entries,
            "throughput_ratio_approx": lambda _: bed["da2_density"] / bed["extreme_density"],
        }


PREDICTOR = Dc2
