"""Numbers of steps from a counter that may begin anew, as that of a data loader in every epoch."""


class StepCounter:
    """The counter of one line of output or of one scalar, whose steps are numbered on.

    `number` is that of the last step, -1 before the first.
    """

    def __init__(self) -> None:
        self.number = -1
        self._count: int | None = None  # as the trainer told it
        self._seen: set[int] = set()  # counts since it began anew
        self._distance = 1  # between the last two steps
        self._epoch: float | None = None
        self._is_new_epoch = False

    def enter(self, epoch: float) -> None:
        """Note that what follows is of `epoch`."""
        if self._epoch is None or epoch > self._epoch:
            self._is_new_epoch = self._epoch is not None
            self._epoch = epoch

    def is_before(self, epoch: float) -> bool:
        """True if `epoch` is over."""
        return self._epoch is not None and epoch < self._epoch

    def is_last(self, count: int) -> bool:
        """True if `count` is that of the last step, and no epoch began since."""
        return count == self._count and not self._is_new_epoch

    def has_passed(self, count: int) -> bool:
        """True if the last step's count is higher."""
        return self._count is not None and count < self._count

    def next_count(self) -> int:
        """Return the count that the next step has if nothing tells it."""
        return 0 if self._count is None else self._count + 1

    def advance(self, count: int) -> int | None:
        """Return the number of the step that the trainer counts as `count`, which becomes the last.

        A count that falls begins anew: its step follows the last one by as much as that followed
        the one before. None, without an effect, if `count` falls to one that was seen before and
        is not the first: such a line is another process's, or of a step that was done again.
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
