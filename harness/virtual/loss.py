"""TCP throughput under loss: the equation of RFC 5348, section 3.1."""

import numpy as np

from harness.virtual.ring_finish import SEGMENT_BYTES

LEAST_RTO_S = 0.2  # Linux's, on top of the round trip


def tcp_bytes_per_s(rtt_s: float | np.ndarray, loss: float | np.ndarray) -> np.ndarray:
    """Return payload bytes/s of a flow that loses the share `loss` of its packets (0: inf).

    RFC 5348, section 3.1, with b = 1: one acknowledgement per packet.
    """
    rtt, p = np.asarray(rtt_s, dtype=float), np.asarray(loss, dtype=float)
    waiting_s = (rtt + LEAST_RTO_S) * 3 * np.sqrt(3 * p / 8) * p * (1 + 32 * p**2)
    took_s = rtt * np.sqrt(2 * p / 3) + waiting_s
    return np.divide(SEGMENT_BYTES, took_s, out=np.full_like(took_s, np.inf), where=p > 0)
