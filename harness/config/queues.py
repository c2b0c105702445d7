"""Settings `queue_ms` and `queue_bytes` of a network: what each direction of a link buffers."""

from profiles.base import Profile
from profiles.limits import check_between, check_whole

FEWEST_BYTES, MOST_BYTES = 1 << 18, 1 << 26  # that queue_ms may come to
LEAST_BYTES = 3000  # two packets
MS = (0.01, 60_000.0)


def check(queue_ms: float | None, queue_bytes: int | None) -> None:
    """ValueError unless one of both is a number in its range, and the other None."""
    if queue_ms is not None:
        check_between(*MS, queue_ms=queue_ms)
    if queue_bytes is not None:
        check_whole(LEAST_BYTES, 1 << 30, queue_bytes=queue_bytes)
    queue = (queue_ms, queue_bytes)
    if queue.count(None) != 1:
        raise ValueError(f"queue_ms, queue_bytes must be one number and one null, got {queue}")


def bytes_of(queue_ms: float | None, queue_bytes: int | None, profile: Profile) -> int:
    """Bytes each direction buffers: queue_ms at the highest rate, in [256 KiB, 64 MiB].

    Fixed in bytes like a switch's buffer, so it means more ms when the rate drops, and nothing
    queued is lost by a change. Emulated time and rate, so dilation leaves the bytes alone.
    """
    if queue_bytes is not None:
        return queue_bytes
    assert queue_ms is not None
    wanted = profile.extremes().highest_mbit * 125 * queue_ms
    return round(min(MOST_BYTES, max(FEWEST_BYTES, wanted)))
