"""What carries a message between two nodes: TCP connections, their windows, gloo's segments.

NCCL divides a message over several connections (two threads of eight sockets on AWS, by its
net_socket.cc). A connection has a window of unacknowledged bytes, so it carries no more than one a
round trip, and clouds bound its rate. Where a connection has been idle, its window begins small and
doubles every round trip (RFC 5681, slow start).

Gloo's all-reduce sends every piece in segments of 1 MiB at most, two at least, of which two are
under way (gloo/allreduce.h, kMaxSegmentSize), each when its receiver has said that it is ready. Two
of them take a round trip and their bytes once, unless the link is busy for longer.

A message takes more of a link than what is in it: its header, what its ends tell each other before
it, a last packet that is not full, and acknowledgments. `message_bytes` is how much.
"""

from collections.abc import Sequence
from math import ceil, inf, log2
from typing import NamedTuple

import numpy as np

MOST_SEGMENT_BYTES = 1 << 20  # of gloo's
FEWEST_SEGMENTS = 2  # of a piece
AT_A_TIME = 2  # segments that are under way


class TcpFlows(NamedTuple):
    """Connections of every message; as it is by default, links alone bound them."""

    flows: int = 1  # TCP connections that a message is divided over
    flow_bytes_per_s: float = inf  # most of one of them
    window_bytes: float = inf  # of one of them, unacknowledged
    initial_window_bytes: float = inf  # of one of them, at first
    segment_bytes: float = 0.0  # most in a segment of an all-reduce; 0: pieces are not divided
    segment_s: float = 0.0  # that a segment takes beside its way
    message_bytes: float = 0.0  # by which a message is longer than what is in it, as payload

    @property
    def is_bounded(self) -> bool:
        return self.window_bytes < inf or self.flow_bytes_per_s < inf

    def flow_bound(self, rtt_s: np.ndarray) -> np.ndarray:
        """Bytes/s of one connection at most, by round trips; inf where nothing bounds it."""
        per_s = np.full_like(rtt_s, inf)
        np.divide(self.window_bytes, rtt_s, out=per_s, where=rtt_s > 0)
        return np.minimum(per_s, self.flow_bytes_per_s)

    def slow_start_s(self, nbytes: float, bytes_per_s: float, rtt_s: float) -> float:
        """Seconds that a message takes longer because windows grow, over all connections."""
        window = min(bytes_per_s * rtt_s, self.flows * self.window_bytes)
        first = self.flows * self.initial_window_bytes
        if first >= window or not nbytes:
            return 0.0
        growing = min(nbytes, window - first)  # bytes, until windows are full
        return max(0.0, rtt_s * log2(1 + growing / first) - growing / bytes_per_s)

    def segment(self, piece: float) -> float:
        """Bytes of a segment of a piece; 0: it is not divided."""
        return piece / self.segments(piece) if self.segment_bytes else 0.0

    def segments(self, piece: float) -> int:
        """Number of messages that a piece of an all-reduce is sent in."""
        return segments(piece, self.segment_bytes) if self.segment_bytes else 1

    def segmented(self, segment: float, per_s: np.ndarray, rtt_s: np.ndarray) -> np.ndarray:
        """Bytes/s that two segments at a time leave of `per_s`."""
        return np.minimum(per_s, AT_A_TIME * segment / (rtt_s + segment / per_s + self.segment_s))


def segments(piece: float, segment_bytes: float = MOST_SEGMENT_BYTES) -> int:
    """Number of gloo's segments of a piece, of at most `segment_bytes` each."""
    return max(FEWEST_SEGMENTS, ceil(piece / segment_bytes))


def payload_shares(
    bytes_per_s: np.ndarray, efficiency: float, shares: Sequence[tuple[float, float]]
) -> np.ndarray | float:
    """Payload's share of rates: `efficiency`, or by `shares` of rates in bytes/s, rising.

    Between two of these the share is linear in the rate's logarithm; beyond them it is the last.
    """
    if not shares:
        return efficiency
    rates, of_rates = zip(*shares, strict=True)
    return np.interp(np.log(np.maximum(bytes_per_s, 1e-9)), np.log(rates), of_rates)
