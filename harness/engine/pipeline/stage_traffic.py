"""Traffic and time of the cuts of a model in one step at one rank."""

from dataclasses import dataclass, replace

from harness.records import columns
from harness.records.run_directory import Activations, Step


@dataclass(frozen=True, kw_only=True)
class StageTraffic(Activations):
    """Counts of the cuts: zero, and nan, if the model is not cut. Seconds are real."""

    norm_bytes: int = 0  # sent to learn the norm of the whole gradient
    received_bytes: int = 0
    flushed_s: float = 0.0  # for what had not left, and that norm, after all was computed
    waited_s: float = 0.0  # for what had not arrived, also while another stage computed it
    compress_s: float = 0.0  # encoding, and decoding while nothing else was to be done
    late_s: float = 0.0  # that computing took longer than its paced time

    def added_to(self, row: Step, dilation: float) -> Step:
        """Add this to `row` of the gradient exchange. A stage that waits does not compute."""
        waited_s, flushed_s = self.waited_s / dilation, self.flushed_s / dilation
        compress_s = self.compress_s / dilation
        first_s = row.compute_before_first_bucket_s - waited_s - compress_s
        return replace(
            row,
            compute_before_first_bucket_s=max(0.0, first_s),
            compute_s=row.compute_s - waited_s - compress_s,
            compress_s=row.compress_s + compress_s,
            comm_s=row.comm_s + waited_s + flushed_s,
            exposed_s=row.exposed_s + waited_s + flushed_s,
            sent_bytes=row.sent_bytes + self.activation_bytes + self.norm_bytes,
            received_bytes=row.received_bytes + self.received_bytes,
            **columns.values(self, Activations),
        )
