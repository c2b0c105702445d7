"""When each worker of a ring finishes: a worker behind a slow hop waits for all that crosses it."""

import numpy as np

SEGMENT_BYTES = 1448  # of TCP payload at MTU 1500 with timestamps
HEADERS_BYTES = 320  # that Linux's TCP takes off the longest packet of a link
MOST_PACKET_BYTES = 65_536


def packet_bytes(packet_s: float, bytes_per_s: float) -> int:
    """Return the payload of the longest packet that a node hands to a link; 0 for 0 s."""
    if not packet_s:
        return 0
    longest = min(MOST_PACKET_BYTES, packet_s * bytes_per_s) - HEADERS_BYTES
    return max(1, int(longest / SEGMENT_BYTES)) * SEGMENT_BYTES


def last_packet(nbytes: float | np.ndarray, packet_bytes: float) -> np.ndarray:
    """Return the bytes in the last packet of messages of `nbytes`; 0 for packets of size 0."""
    sizes = np.asarray(nbytes, dtype=float)
    if not packet_bytes:
        return np.zeros_like(sizes)
    return sizes - packet_bytes * np.maximum(0.0, np.ceil(sizes / packet_bytes) - 1)


def ring_ends_s(
    bytes_per_s: np.ndarray,
    pieces: np.ndarray,
    messages: int,
    at_once: float = np.inf,
    burst_s: float = 0.0,
    packet_bytes: float = 0.0,
) -> np.ndarray:
    """Return, [P], the seconds until each worker has the last of `messages` consecutive messages.

    Hop h leads from worker h to the next, at `bytes_per_s[h]`. Its first message is h's piece of
    `pieces`, [P] bytes. Later ones are what worker h received before, forwarded as soon as the
    first `at_once` bytes have arrived. A hop is a token bucket, full at first, that holds `burst_s`
    of its rate and lets a message's last packet pass in debt.
    """
    paid_s = np.full(len(pieces), -burst_s)  # when the hop has tokens for all that it has carried
    there_s = np.zeros(len(pieces))
    rests, firsts = last_packet(pieces, packet_bytes), np.minimum(pieces, at_once)
    hop_before = np.arange(len(pieces)) - 1
    whose = np.arange(len(pieces))  # pieces that hops carry
    s_per_byte = 1 / bytes_per_s
    for _ in range(messages):
        handed_on_s = there_s - burst_s + firsts[whose] * s_per_byte
        paid_s = np.maximum(paid_s + pieces[whose] * s_per_byte, handed_on_s)
        there_s = np.maximum(there_s, paid_s - rests[whose] * s_per_byte)[hop_before]
        whose = whose[hop_before]
    return there_s
