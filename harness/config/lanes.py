"""Rules by which the compression of buckets shares a worker's device with backward."""

from typing import NamedTuple

ALL = 1 << 30  # buckets ahead: all are started before the first is resumed


class Lanes(NamedTuple):
    """Rules for a worker's compression lane, which runs beside its network lane."""

    on_device: bool = True  # False: compression runs beside backward, in its own lane
    waits: bool = False  # True: the lane blocks until a bucket's collectives end
    interference: float = 1.0  # slowdown of compression that runs amid backward

    @property
    def ahead(self) -> int:
        """Number of later buckets that start compression before an earlier bucket is resumed."""
        if self.waits:
            return 0
        return ALL if self.on_device else 1
