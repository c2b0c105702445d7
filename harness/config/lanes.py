"""How the compression of buckets shares a worker's device with backward."""

from typing import NamedTuple

ALL = 1 << 30  # buckets ahead: none is come back to before the last has been started


class Lanes(NamedTuple):
    """Rules for a worker's compression lane beside the network's lane."""

    on_device: bool = True  # compression takes turns with backward; else it has a lane of its own
    waits: bool = False  # it waits for a bucket's collectives before anything else goes on there
    interference: float = 1.0  # compression between parts of backward takes so many times as long

    @property
    def ahead(self) -> int:
        """Buckets that are started before the first is come back to."""
        if self.waits:
            return 0
        return ALL if self.on_device else 1
