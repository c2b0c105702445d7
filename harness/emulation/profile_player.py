"""Player of a profile on a network during training, which also samples the links.

The plan is the profile at multiples of a fixed emulated time. It depends neither on when this
thread wakes nor on the method that trains, so all runs of a comparison get the same conditions.
Events named `conditions` record it: the first has every link, later ones the changes.
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pyroute2 import IPRoute

from harness.emulation import links
from harness.emulation.audit import Audit
from harness.emulation.contention import Contention
from harness.emulation.direction import apply
from harness.emulation.iperf import FlowRecord
from harness.emulation.monitor import Monitor, OutsideChange
from harness.emulation.network import Network
from harness.records.run_directory import Events, LinkSample, Table
from profiles.base import Link

MOST_MISSED = 1000  # moments of the plan; of more, only the last ones are recorded
PAUSED_S = 0.005  # real, between looks at a clock that stands still
STOOD_STILL_S = 1.0  # real: of a player that stands still for longer an event tells


class PausableClock(Protocol):
    dilation: float
    begins_s: float  # emulated seconds at which it starts

    def time_s(self) -> float | None:
        """Emulated seconds since step 0, or None before it. It stops while training is paused."""
        ...


class Deadlines:
    """Absolute deadlines every `period_s` of CLOCK_MONOTONIC. Missed ones are skipped."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.next_s = time.monotonic()

    def take(self) -> bool:
        """Return True and move on to the next deadline if the current one has passed."""
        late_s = time.monotonic() - self.next_s
        if late_s < 0:
            return False
        self.next_s += self.period_s * (1 + late_s // self.period_s)
        return True


class Player:
    """Thread that plays its profile on a network and samples links; stop() raises its `error`."""

    def __init__(
        self, network: Network, clock: PausableClock, run_dir: Path, events: Events
    ) -> None:
        self._network, self._clock = network, clock
        self._table, self._events = Table(run_dir, "links.csv"), events
        self._update_s = network.options["update_s"] / clock.dilation  # emulated
        # the last moment of the plan that was looked at
        self._moment = int(clock.begins_s / self._update_s + 1e-6) - 1
        self._told: dict[str, Link] = {}  # conditions of each link in the events so far
        self._seen_s: float | None = None  # of the clock, when it was last looked at
        self._samples = Deadlines(network.options["sample_s"])
        self._sampled = False  # the first sample comes as soon as the clock starts
        self._contention, self._wanted = self._competing(run_dir), 0
        self.flows: list[FlowRecord] = []  # the competing flows there were, once stopped
        self.audit = Audit(network.directions)
        self._outside: set[OutsideChange] = set()  # others' changes that the events tell
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    @property
    def error(self) -> Exception | None:
        """First error so far, in this thread or in the competing flows."""
        return self._error or (self._contention.error if self._contention else None)

    def stop(self) -> None:
        """Take a last sample, end the thread and the competing flows, and raise any error."""
        self._stopping.set()
        self._thread.join()
        if self._contention:
            self.flows = self._contention.stop()
        if self._error:
            raise self._error

    def _competing(self, run_dir: Path) -> Contention | None:
        """Return the profile's competing flows, or None if it never has any."""
        network = self._network
        if not network.profile.extremes().flows:
            return None
        folder = run_dir / "contention"
        control = network.options["congestion_control"]
        return Contention(folder, network.pairs, self._events, self._clock.time_s, control)

    def _run(self) -> None:
        try:
            _go_first()
            with (
                self._network.switch.entered(),
                IPRoute() as ip,
                self._network.watched(ip) as monitors,
            ):
                while not self._stopping.is_set():
                    began_s = self._clock.time_s()
                    self._follow(ip)
                    if self._samples.take() or not self._sampled:
                        self._sample(ip, monitors)
                    until_sample_s = self._samples.next_s - time.monotonic()
                    wait_s = max(0.0, min(until_sample_s, self._until_moment_s()))
                    self._stopping.wait(wait_s)
                    self._tell_of_a_stall(began_s, wait_s)
                self._sample(ip, monitors)
        except Exception as error:
            self._error = error

    def _until_moment_s(self) -> float:
        """Return real seconds to the plan's next moment, or a short wait while the clock stops."""
        seen_s, self._seen_s = self._seen_s, self._clock.time_s()
        if self._seen_s is None or self._seen_s == seen_s:
            return PAUSED_S
        return ((self._moment + 1) * self._update_s - self._seen_s) * self._clock.dilation

    def _follow(self, ip: IPRoute) -> None:
        """Apply the plan for the present time, and record missed moments as not applied."""
        time_s = self._clock.time_s()
        if time_s is None:
            return
        now = int(time_s / self._update_s + 1e-6)
        if now <= self._moment:
            return
        plan = {}
        for moment in range(max(self._moment + 1, now - MOST_MISSED), now + 1):
            if changes := self._changes(moment):
                plan[moment] = changes
        self._moment = now
        if plan:
            self._bring_about(ip, plan)
        self._compete(now)

    def _bring_about(self, ip: IPRoute, plan: dict[int, dict[str, dict[str, float]]]) -> None:
        """Apply the sum of all moments of `plan`, and record each."""
        last = max(plan)
        if apply(ip, [(direction, direction.planned) for direction in self._network.directions]):
            self.audit.changed(self._late_ms(last))
        for moment, changes in plan.items():
            self._log(moment, changes, applied=moment == last)

    def _changes(self, moment: int) -> dict[str, dict[str, float]]:
        """Return the plan's changes at `moment`: fields of Link, by link."""
        planned_s = moment * self._update_s
        found = {}
        for direction in self._network.directions:
            planned = direction.conditions(planned_s)
            told = self._told.get(direction.name)
            if planned != told:
                found[direction.name] = _difference(planned, told)
                self._told[direction.name] = direction.planned = planned
        return found

    def _late_ms(self, moment: int) -> float:
        """Return real milliseconds since `moment` of the plan, or since the clock began if less."""
        time_s = self._clock.time_s()
        assert time_s is not None
        planned_s = max(moment * self._update_s, self._clock.begins_s)
        return (time_s - planned_s) * self._clock.dilation * 1000

    def _log(self, moment: int, changes: dict[str, dict[str, float]], applied: bool) -> None:
        self._events.append(
            "conditions",
            self._clock.time_s(),
            planned_s=moment * self._update_s,
            links=changes,
            applied=applied,
            late_ms=self._late_ms(moment),
        )

    def _compete(self, moment: int) -> None:
        if self._contention is None:
            return
        planned_s = moment * self._update_s
        flows = self._network.profile.flows(planned_s)
        if flows != self._wanted:
            self._wanted = flows
            self._contention.want(flows, planned_s)

    def _sample(self, ip: IPRoute, monitors: Sequence[Monitor]) -> None:
        """Append one row per direction to links.csv: what the kernel holds now.

        Do nothing before step 0. Raise NetworkError if the kernel cannot be read or lacks a shaper.
        """
        time_s = self._clock.time_s()
        if time_s is None:
            return
        self._sampled = True
        changes = [change for monitor in monitors for change in monitor.changes()]
        counted = self._network.counters(ip)
        self.audit.sample(counted)
        directions, rows = self._network.directions, []
        read = links.read_rates(ip, [direction.shaper for direction in directions])
        for direction, real_mbit in zip(directions, read, strict=True):
            planned, name = direction.planned.rate_mbit, direction.name
            if real_mbit is None:
                raise links.NetworkError(f"{name} is no longer shaped: somebody removed its class")
            held, was_set = real_mbit * direction.dilation, direction.applied_mbit
            if held != was_set:
                changes.append(OutsideChange(name, f"it held {held:g} Mbit/s, {was_set:g} was set"))
            self.audit.compare(planned, held)
            rows.append(LinkSample(time_s, name, planned, held, *counted[name]))
        self._table.append(*rows)
        self._tell(time_s, changes)

    def _tell_of_a_stall(self, began_s: float | None, wait_s: float) -> None:
        """Record if this thread took far longer than `wait_s` since `began_s`."""
        time_s = self._clock.time_s()
        if began_s is None or time_s is None:
            return
        stall_s = (time_s - began_s) * self._clock.dilation - wait_s
        if stall_s > STOOD_STILL_S:
            self._events.append("player_stood_still", time_s, length_s=stall_s)

    def _tell(self, time_s: float, changes: list[OutsideChange]) -> None:
        """Record changes made by others, each kind of change of a link once."""
        self.audit.changed_outside(len(changes))
        for change in changes:
            if change not in self._outside:
                self._outside.add(change)
                self._events.append("changed_outside", time_s, **change._asdict())


def _go_first() -> None:
    """Let only the calling thread run before all computation on this machine.

    If every core is busy, it otherwise wakes up to 60 ms late. Only root of the machine may do
    this. In a user namespace changes are late by `late_ms`.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        pass


def _difference(planned: Link, told: Link | None) -> dict[str, float]:
    """Return the fields of `planned` that differ from `told`, or all if `told` is None."""
    if told is None:
        return planned._asdict()
    return {
        name: value
        for name, value, before in zip(Link._fields, planned, told, strict=True)
        if value != before
    }
