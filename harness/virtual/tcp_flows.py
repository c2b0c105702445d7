"""TCP connections that carry a message between two nodes: windows, and segments.

NCCL divides a message over several connections (two threads of eight sockets on AWS, by its
net_socket.cc). A connection has a window of unacknowledged bytes, so it carries at most one window
per round trip, and clouds limit its rate. After idling, its window begins small and doubles every
round trip (RFC 5681, slow start).

Between CPUs an all-reduce sends every piece in segments of at most 1 MiB, at least two, of which
two are under way. Each waits until its receiver is ready. Two segments take a round trip and their
bytes once, unless the link is busy for longer.

A message uses more of a link than its content: a header, a handshake before it, a last packet that
is not full, and acknowledgements. `message_bytes` is this surplus.
"""

from collections.abc import Sequence
from math import ceil, inf, log2
from typing import NamedTuple

import numpy as np

from harness.config.backends import BETWEEN_CPUS

MOST_SEGMENT_BYTES = BETWEEN_CPUS.segment_bytes
FEWEST_SEGMENTS = BETWEEN_CPUS.segments_per_rank  # of a piece
AT_A_TIME = BETWEEN_CPUS.segments_under_way


class TcpFlows(NamedTuple):
    """Connections of every message. By default only links limit them."""

    flows: int = 1  # TCP connections that a message is divided over
    flow_bytes_per_s: float = inf  # most of one of them
    window_bytes: float = inf  # of one of them, unacknowledged
    initial_window_bytes: float = inf  # of one of them, at first
    segment_bytes: float = 0.0  # most in a segment of an all-reduce; 0: pieces are not divided
    segment_s: float = 0.0  # that a segment takes beside its way
    message_bytes: float = 0.0  # overhead of a message, in bytes of payload

    @property
    def is_bounded(self) -> bool:
        return self.window_bytes < inf or self.flow_bytes_per_s < inf

    def flow_bound(self, rtt_s: np.ndarray) -> np.ndarray:
        """Return the highest bytes/s of one connection by round trip; inf without a limit."""
        per_s = np.full_like(rtt_s, inf)
        np.divide(self.window_bytes, rtt_s, out=per_s, where=rtt_s > 0)
        return np.minimum(per_s, self.flow_bytes_per_s)

    def slow_start_s(self, nbytes: float, bytes_per_s: float, rtt_s: float) -> float:
        """Return the extra seconds of a message while windows grow, over all connections."""
        window = min(bytes_per_s * rtt_s, self.flows * self.window_bytes)
        first = self.flows * self.initial_window_bytes
        if first >= window or not nbytes:
            return 0.0
        growing = min(nbytes, window - first)  # bytes, until windows are full
        return max(0.0, rtt_s * log2(1 + growing / first) - growing / bytes_per_s)

    def segment(self, piece: float) -> float:
        """Return the bytes per segment of a piece of `piece` bytes; 0 if pieces are not divided."""
        return piece / self.segments(piece) if self.segment_bytes else 0.0

    def segments(self, piece: float) -> int:
        """Return the number of messages that carry a piece of an all-reduce."""
        return segments(piece, self.segment_bytes) if self.segment_bytes else 1

    def segmented(self, segment: float, per_s: np.ndarray, rtt_s: np.ndarray) -> np.ndarray:
        """Return the bytes/s that remain of `per_s` when two segments are under way at a time."""
        return np.minimum(per_s, AT_A_TIME * segment / (rtt_s + segment / per_s + self.segment_s))


def segments(piece: float, segment_bytes: float = MOST_SEGMENT_BYTES) -> int:
    """Return the number of segments of a piece, of at most `segment_bytes` each."""
    return max(FEWEST_SEGMENTS, ceil(piece / segment_bytes))


def payload_shares(
    bytes_per_s: np.ndarray, efficiency: float, shares: Sequence[tuple[float, float]]
) -> np.ndarray | float:
    """Return the payload's share of each rate: `efficiency`, or interpolated from `shares`.

    Shares are by rate in bytes/s. Between two rates the share is linear in the logarithm of the
    rate. Beyond them it is constant.
    """
    if not shares:
        return efficiency
    rates, of_rates = zip(*shares, strict=True)
    return np.interp(np.log(np.maximum(bytes_per_s, 1e-9)), np.log(rates), of_rates)
