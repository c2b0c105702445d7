"""Step numbers from a counter that may restart, as a data loader's does in every epoch."""


class StepCounter:
    """Counter that numbers steps without gaps; `number` is the last step, or -1 at first."""

    def __init__(self) -> None:
        self.number = -1
        self._count: int | None = None  # as the trainer told it
        self._seen: set[int] = set()  # counts since it began anew
        self._distance = 1  # between the last two steps
        self._epoch: float | None = None
        self._is_new_epoch = False

    def enter(self, epoch: float) -> None:
        """Note that what follows belongs to `epoch`."""
        if self._epoch is None or epoch > self._epoch:
            self._is_new_epoch = self._epoch is not None
            self._epoch = epoch

    def is_before(self, epoch: float) -> bool:
        """Return True if `epoch` is over."""
        return self._epoch is not None and epoch < self._epoch

    def is_last(self, count: int) -> bool:
        """Return True if `count` is the last step's, and no epoch began since."""
        return count == self._count and not self._is_new_epoch

    def has_passed(self, count: int) -> bool:
        """Return True if the last step's count is higher."""
        return self._count is not None and count < self._count

    def next_count(self) -> int:
        """Return the count of the next step if no line states it."""
        return 0 if self._count is None else self._count + 1

    def advance(self, count: int) -> int | None:
        """Return the number of the step that the trainer counts as `count`, and make it the last.

        A lower count means a restart: its step follows the last one at the previous distance.
        Return None, without an effect, if `count` falls to a value that was seen before and is not
        the first. Such a line comes from another process, or from a repeated step.
        """
        if self._count is None or count > self._count:
            number = count if self._count is None else self.number + count - self._count
            if self._count is not None:
                self._distance = number - self.number
        elif self._begins_anew(count):
            number = self.number + self._distance
            self._seen = set()
        else:
            return None
        self.number, self._count, self._is_new_epoch = number, count, False
        self._seen.add(count)
        return number

    def _begins_anew(self, count: int) -> bool:
        if self._epoch is not None:
            return self._is_new_epoch
        return count != self._count and (count <= min(self._seen) or count not in self._seen)
