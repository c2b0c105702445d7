"""What crossed the cuts of a model in one step at one rank."""

from typing import NamedTuple

from harness.records import Step


class Crossing(NamedTuple):
    """All zero, and nan, where a model is not cut; seconds are real."""

    sent_bytes: int = 0
    received_bytes: int = 0
    dense_bytes: int = 0  # that would have been sent had nothing been compressed
    flushed_s: float = 0.0  # for what had not left, after all was computed
    waited_s: float = 0.0  # for what had not arrived, also while another stage computed it
    compress_s: float = 0.0  # encoding, and decoding while nothing else was to be done
    late_s: float = 0.0  # that computing took longer than its paced time
    occupancy: float = float("nan")  # share of the activations that were sent forward

    def added_to(self, row: Step, dilation: float) -> Step:
        """`row`, of the gradient exchange alone, with this: a stage that waits does not compute."""
        waited_s, flushed_s = self.waited_s / dilation, self.flushed_s / dilation
        compress_s = self.compress_s / dilation
        return row._replace(
            before_s=max(0.0, row.before_s - waited_s - compress_s),
            compute_s=row.compute_s - waited_s - compress_s,
            compress_s=row.compress_s + compress_s,
            comm_s=row.comm_s + waited_s + flushed_s,
            exposed_s=row.exposed_s + waited_s + flushed_s,
            sent_bytes=row.sent_bytes + self.sent_bytes,
            received_bytes=row.received_bytes + self.received_bytes,
            activation_bytes=self.sent_bytes,
            dense_activation_bytes=self.dense_bytes,
            activation_occupancy=self.occupancy,
        )
