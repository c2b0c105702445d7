"""Which trainers' processes are gone for good: told to the server by who started them."""

import mmap


class DeadRanks:
    """Lives in anonymous shared memory: made before the processes are forked that read it."""

    def __init__(self, ranks: int) -> None:
        self._memory = mmap.mmap(-1, ranks)

    def add(self, rank: int) -> None:
        """Record that `rank` will not come back."""
        self._memory[rank] = 1

    def __contains__(self, rank: int) -> bool:
        return self._memory[rank] == 1
