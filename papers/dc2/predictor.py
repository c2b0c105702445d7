"""DC2's throughput claims (static LSTM, dynamic VGG16): bounds only, as its densities vary.

A sparse all-gather of density k costs each of P workers (P-1) k n entries of 12 bytes, a ring
all-reduce 2 (P-1)/P n of 4. The most that a method can gain is where communication is everything:
2 x 4 / (12 P k), at the least density that its controller may choose (table I, k_min). What is
predicted of a throughput is that bound. Compression is taken to cost nothing.
"""

from collections.abc import Callable
from functools import cached_property

from harness.fidelity.cells import Cell
from harness.fidelity.predictor import Predictor
from harness.fidelity.replays import ALL_MB, Iteration, ReplayedMethod, ReplayJob, iteration

FLOAT_BYTES = 4


class Dc2(Predictor):
    """`predict` gives the bound of a throughput claim, None for all else."""

    @cached_property
    def _rules(self) -> dict[str, Callable[[Cell], float | None]]:
        return {
            "normalized_throughput": lambda c: self.most_gain(self.testbed["least_density"]),
            "throughput_ratio_approx": lambda c: (
                self.testbed["da2_density"] / self.testbed["extreme_density"]
            ),
        }

    def most_gain(self, density: float) -> float:
        """Over no compression, of a method that sends `density` of the elements, if sending is all.

        Volumes per worker, entries of `entry_bytes`.
        """
        entries = self.testbed["workers"] * density * self.testbed["entry_bytes"]
        return 2 * FLOAT_BYTES / entries

    def iteration(self, model: str, density: float, rate_mbit: float | None = None) -> Iteration:
        """With `density` of the whole gradient gathered after backward, as Horovod's hook does."""
        cluster = self.testbed.cluster(rate_mbit=rate_mbit)
        method = ReplayedMethod(
            "topk.TopK", (), density, overlap="after_backward", bucket_mb=ALL_MB
        )
        return iteration(ReplayJob(model, self.testbed.compute(model), cluster), method)

    def density_needed(self, gain: float) -> float:
        """The highest density whose bound is `gain`."""
        return 2 * FLOAT_BYTES / (self.testbed["workers"] * gain * self.testbed["entry_bytes"])
