"""Settings `queue_ms` and `queue_bytes` of a network: buffer size of each direction of a link."""

from profiles.base import Profile
from profiles.limits import check_between, check_whole

FEWEST_BYTES, MOST_BYTES = 1 << 18, 1 << 26  # limits of a size computed from queue_ms
LEAST_BYTES = 3000  # two packets
MS = (0.01, 60_000.0)


def check(queue_ms: float | None, queue_bytes: int | None) -> None:
    """Raise ValueError unless exactly one of both is set, to a number in its range."""
    if queue_ms is not None:
        check_between(*MS, queue_ms=queue_ms)
    if queue_bytes is not None:
        check_whole(LEAST_BYTES, 1 << 30, queue_bytes=queue_bytes)
    queue = (queue_ms, queue_bytes)
    if queue.count(None) != 1:
        raise ValueError(f"queue_ms, queue_bytes must be one number and one null, got {queue}")


def bytes_of(queue_ms: float | None, queue_bytes: int | None, profile: Profile) -> int:
    """Return the buffer size of each direction: `queue_bytes`, or `queue_ms` at the highest rate.

    A size from `queue_ms` is kept in [256 KiB, 64 MiB] and fixed, like a switch's buffer: a change
    of the rate drops no packet. Rate and `queue_ms` are emulated, so dilation does not change it.
    """
    if queue_bytes is not None:
        return queue_bytes
    assert queue_ms is not None
    wanted = profile.extremes().highest_mbit * 125 * queue_ms
    return round(min(MOST_BYTES, max(FEWEST_BYTES, wanted)))
