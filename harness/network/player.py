"""Plays a profile on a network while training runs, and samples its links."""

import threading
import time
from typing import TYPE_CHECKING, Protocol

from pyroute2 import IPRoute

from harness.records import Events, LinkSample, Table

if TYPE_CHECKING:
    from harness.network.network import Network


class Clock(Protocol):
    def time_s(self) -> float | None:
        """Emulated seconds since step 0, None before it; stands still while training is paused."""
        ...


class Deadlines:
    """Absolute deadlines every `period_s` of CLOCK_MONOTONIC; missed ones are skipped."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.next_s = time.monotonic()

    def take(self) -> float | None:
        """Seconds since the deadline that has come, None when none has; moves on to the next."""
        late_s = time.monotonic() - self.next_s
        if late_s < 0:
            return None
        self.next_s += self.period_s * (1 + late_s // self.period_s)
        return late_s


class Player:
    """A thread, started at once; what fails in it is in `error` and raised again by stop()."""

    def __init__(
        self,
        network: "Network",
        clock: Clock,
        links_table: Table,
        events: Events,
        update_s: float,
        sample_s: float,
    ) -> None:
        self._network, self._clock = network, clock
        self._table, self._events = links_table, events
        self._updates, self._samples = Deadlines(update_s), Deadlines(sample_s)
        self._stopping = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after a last sample; raises what failed in it."""
        self._stopping.set()
        self._thread.join()
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            with self._network.switch.entered(), IPRoute() as ip:
                while not self._stopping.is_set():
                    self._tick(ip)
                    wake_s = min(self._updates.next_s, self._samples.next_s)
                    self._stopping.wait(max(0.0, wake_s - time.monotonic()))
                self._sample(ip)
        except Exception as error:
            self.error = error

    def _tick(self, ip: IPRoute) -> None:
        late_s = self._updates.take()
        time_s = self._clock.time_s()
        if late_s is not None and time_s is not None:
            for node in range(self._network.size):
                if self._network.apply(ip, time_s, node):
                    self._log(time_s, late_s, node)
        if self._samples.take() is not None:
            self._sample(ip)

    def _log(self, planned_s: float, late_s: float, node: int) -> None:
        self._events.append(
            "condition",
            self._clock.time_s(),
            planned_s=planned_s,
            late_ms=late_s * 1000,  # real, of the tick
            node=node,
            planned_mbit=self._network.planned(planned_s, node).rate_mbit,
            applied_mbit=self._network.applied_mbit[f"down{node}"],
        )

    def _sample(self, ip: IPRoute) -> None:
        """One row for every link; none before step 0."""
        time_s = self._clock.time_s()
        if time_s is None:
            return
        rates = [self._network.planned(time_s, n).rate_mbit for n in range(self._network.size)]
        rows = [
            LinkSample(
                time_s, name, rates[int(name.lstrip("updown"))],
                self._network.applied_mbit[name], *counted,
            )
            for name, counted in self._network.counters(ip).items()
        ]  # fmt: skip
        self._table.append(*rows)
