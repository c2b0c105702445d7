"""Competing traffic: the wanted number of iperf3 flows on each path, changed at run time."""

import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.emulation import tcp_settings
from harness.emulation.iperf import CompetingPath, Connection, FlowRecord, IperfFlow, Sockets
from harness.emulation.links import NetworkError
from harness.emulation.namespaces import Namespace
from harness.records.run_directory import Events

_FIRST_PORT = 5201
_LOOK_S = 0.002  # between looks at sockets while flows begin or end
_BEGIN_S, _END_S = 30.0, 5.0  # patience with a flow that begins or ends


class Wish(NamedTuple):
    flows: int
    planned_s: float | None  # emulated; None: not the profile's, the end


class Contention:
    """Thread that keeps the wanted competing flows running; stop() raises its `error`."""

    def __init__(
        self,
        folder: Path,
        pairs: Sequence[CompetingPath],
        events: Events,
        time_s: Callable[[], float | None],
        congestion_control: str | None = None,
    ) -> None:
        """Start the thread. `folder` is created with the first flow.

        Raise ValueError for a `congestion_control` that this kernel lacks; None is its default.
        """
        if congestion_control is not None:
            tcp_settings.require_known(congestion_control=congestion_control)
        self._control = congestion_control
        self._folder, self._pairs, self._events = folder, list(pairs), events
        self._time_s = time_s
        self._levels: list[list[IperfFlow]] = []  # n-th flows of all pairs; the last ones go first
        self._alive: list[IperfFlow] = []  # all that may have a process
        self._numbers, self._ports = itertools.count(), itertools.count(_FIRST_PORT)
        self._sockets: dict[int, Sockets] = {}  # by descriptor of the namespace
        self._records: list[FlowRecord] = []
        self._wish, self._stopping = Wish(0, None), False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="contention", daemon=True)
        self._thread.start()

    def want(self, flows: int, planned_s: float) -> None:
        """Request `flows` competing flows per pair, as planned at `planned_s`, and return at once.

        If calls come faster than flows begin, the last counts. Raise ValueError if it is negative.
        """
        if flows < 0:
            raise ValueError(f"competing flows must be >= 0, got {flows} at {planned_s} s")
        if flows != self._wish.flows:
            self._wish = Wish(flows, planned_s)
            os.eventfd_write(self._wake, 1)

    def stop(self) -> list[FlowRecord]:
        """End all flows and the thread. Return records of all flows; raise the thread's error."""
        if not self._stopping:
            self._stopping = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
        if self.error:
            raise self.error
        return self._records

    def _run(self) -> None:
        try:
            while not self._stopping and not self.error:
                self._require_running()
                wish = self._wish
                if wish.flows > len(self._levels):
                    self._begin(wish)
                elif wish.flows < len(self._levels):
                    self._end(wish)
                else:
                    self._wait(None)
        except Exception as error:
            self.error = error
        try:
            self._end(Wish(0, None))
        except Exception as error:
            self._fail(error)
        for flow in self._alive:  # none, unless that failed
            flow.kill()
        for sockets in self._sockets.values():
            sockets.close()

    def _fail(self, error: Exception) -> None:
        """Keep the first error, since later ones follow from it."""
        self.error = self.error or error

    def _require_running(self) -> None:
        for flow in self._alive:
            flow.require_running()

    def _begin(self, wish: Wish) -> None:
        """Start all missing flows. Return when their data flows, or when stop() is called."""
        self._folder.mkdir(exist_ok=True)
        new: list[IperfFlow] = []
        while len(self._levels) < wish.flows:
            self._levels.append([])  # before it is filled: whatever happens, it will be ended
            self._fill(len(self._levels) - 1, wish)
            new += self._levels[-1]
        self._await(new, "listen", self._deaf)
        for flow in new:
            flow.connect()
        self._await(new, "send", lambda flows: self._silent(flows, wish))

    def _fill(self, level: int, wish: Wish) -> None:
        """Start the servers of a new level of flows for `wish`."""
        number = next(self._numbers)
        for pair in self._pairs:
            taken = self._of(pair.receiver).listening()
            port = next(port for port in self._ports if port not in taken)
            flow = IperfFlow(f"flow{number}_{pair.name}", pair, port, self._control, self._folder)
            flow.planned_s = wish.planned_s
            self._levels[level].append(flow)
            self._alive.append(flow)

    def _await(
        self,
        flows: list[IperfFlow],
        what: str,
        waiting: Callable[[list[IperfFlow]], list[IperfFlow]],
    ) -> None:
        """Poll until no flow is `waiting`. Raise NetworkError for one that died or is too slow."""
        deadline = time.monotonic() + _BEGIN_S
        while not self._stopping and (flows := waiting(flows)):
            self._require_running()
            if time.monotonic() > deadline:
                raise NetworkError(f"competing {flows[0].name} did not {what} within {_BEGIN_S} s")
            self._wait(_LOOK_S)

    def _deaf(self, flows: list[IperfFlow]) -> list[IperfFlow]:
        """Return flows whose server does not listen yet."""
        places = {flow.pair.receiver.descriptor: flow.pair.receiver for flow in flows}
        ports = {key: self._of(place).listening() for key, place in places.items()}
        return [flow for flow in flows if flow.port not in ports[flow.pair.receiver.descriptor]]

    def _silent(self, flows: list[IperfFlow], wish: Wish) -> list[IperfFlow]:
        """Return flows without data yet, and record the start of the others."""
        seen = self._connections(flows)
        for flow in flows:
            flow.find(seen[flow.pair.sender.descriptor])
            if flow.flowing:
                flow.started_s = self._time_s()
                self._tell("flow_started", flow.started_s, flow, wish)
        return [flow for flow in flows if not flow.flowing]

    def _end(self, wish: Wish) -> None:
        """End flows beyond `wish.flows`; return when their processes and connections are gone."""
        ending = [flow for level in self._levels[wish.flows :] for flow in level]
        del self._levels[wish.flows :]
        self._look(ending)
        for flow in ending:
            flow.interrupt()
        deadline = time.monotonic() + _END_S
        while ending:
            sending, late = self._look(ending), time.monotonic() > deadline
            for flow in [f for f in ending if f.ended and (late or f not in sending)]:
                ending.remove(flow)
                self._close(flow, wish)
            if late:
                for flow in ending:
                    flow.kill()
            if ending:
                self._wait(_LOOK_S)

    def _close(self, flow: IperfFlow, wish: Wish) -> None:
        """Record a flow that has ended. A flow that never carried data has no record."""
        self._alive.remove(flow)
        stopped_s = self._time_s()
        try:
            if flow.flowing:
                self._records.append(flow.record(stopped_s))
                self._tell("flow_stopped", stopped_s, flow, wish)
            else:
                self._tell("flow_never_came", stopped_s, flow, Wish(0, flow.planned_s))
        except Exception as error:
            self._fail(error)
        flow.close()

    def _look(self, flows: list[IperfFlow]) -> list[IperfFlow]:
        """Read each flow's sent bytes. Return flows that still send or have data to deliver."""
        seen = self._connections(flows)
        return [flow for flow in flows if flow.look(seen[flow.pair.sender.descriptor])]

    def _connections(self, flows: list[IperfFlow]) -> dict[int, list[Connection]]:
        """Return open connections of the senders of `flows`, by descriptor of the namespace."""
        places = {flow.pair.sender.descriptor: flow.pair.sender for flow in flows}
        return {key: self._of(place).connections() for key, place in places.items()}

    def _of(self, namespace: Namespace) -> Sockets:
        if namespace.descriptor not in self._sockets:
            self._sockets[namespace.descriptor] = Sockets(namespace)
        return self._sockets[namespace.descriptor]

    def _wait(self, seconds: float | None) -> None:
        """Wait for a wish or for `seconds`. If None, wait for a wish or the end of a process."""
        waiting = select.poll()
        waiting.register(self._wake, select.POLLIN)
        if seconds is None:
            for flow in self._alive:
                for child in flow.children:
                    waiting.register(child.descriptor, select.POLLIN)
        if any(fd == self._wake for fd, _ in waiting.poll(seconds and seconds * 1000)):
            os.eventfd_read(self._wake)

    def _tell(self, event: str, time_s: float | None, flow: IperfFlow, wish: Wish) -> None:
        self._events.append(
            event,
            time_s,
            flow=flow.name,
            pair=flow.pair.name,
            planned_s=wish.planned_s,
            congestion_control=flow.congestion_control,
        )
