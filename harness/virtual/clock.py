"""The clock of a rank in virtual time, which advances by waits and by charges."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from harness.config.device_costs import Given
from harness.virtual.world import World


@dataclass
class VirtualClock:
    """A `harness.clock.RankClock` of the calling thread, in emulated seconds without dilation.

    Each real second of computation is charged `per_compute_s`. With 0 computation is paced and
    waits by itself. Compression is charged what is `given`, or `per_compress_s` a real second.
    """

    world: World
    per_compute_s: float
    per_compress_s: float
    given: Given | None
    device: torch.device
    dilation: float = 1.0
    _since: float | None = field(default=None, init=False)  # while it computes

    def now(self) -> float:
        """Return the emulated time, including computation that is under way."""
        so_far_s = 0.0 if self._since is None else self.real_s() - self._since
        return self.world.now_s + self.per_compute_s * so_far_s

    def real_s(self) -> float:
        """Return this machine's clock, after the device has finished its queued work."""
        return self._read(time.perf_counter)

    def charge(self, real_s: float) -> None:
        """Advance by the charge for `real_s` seconds of computation here."""
        self.sleep_until(self.now() + self.per_compute_s * real_s)

    def sleep_until(self, at: float) -> None:
        self.world.sleep_until(at)

    @contextmanager
    def computing(self) -> Iterator[None]:
        began = self._since = self.real_s()
        with self._alone():
            yield
        self._since = None
        self.charge(self.real_s() - began)

    @contextmanager
    def compressing(self, entries: int) -> Iterator[None]:
        began = self._read(time.thread_time)
        with self._alone():
            yield
        took_s = self.per_compress_s * (self._read(time.thread_time) - began)
        if self.given:
            took_s = self.given.seconds(entries) if entries else 0.0
        self.sleep_until(self.now() + took_s)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Assert that this thread does not wait while its work is timed."""
        before = self.world.turns
        yield
        assert self.world.turns == before, "a thread waited while its work was timed"

    def _read(self, read: Callable[[], float]) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return read()
