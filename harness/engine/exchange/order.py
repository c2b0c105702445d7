"""In which order a worker starts buckets and comes back to them: the same on all, whatever is late.

What is on the wire first follows from this order alone, so that nobody waits for a collective that
another has put off.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Turn(NamedTuple):
    """Next piece of work: start a bucket, up to its first collective, or go on with it."""

    starts: bool
    bucket: Any


def in_turn(buckets: Iterable[Any], ahead: int) -> Iterator[Turn]:
    """Starts `buckets` as they come, and goes on with each when `ahead` more have been started."""
    started: deque[Any] = deque()
    for bucket in buckets:
        yield Turn(True, bucket)
        started.append(bucket)
        if len(started) > ahead:
            yield Turn(False, started.popleft())
    for bucket in started:
        yield Turn(False, bucket)
