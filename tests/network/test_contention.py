"""Competing flows really share a link, follow what is wanted, are counted, and leave nothing."""

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from harness.network import iperf
from harness.network.contention import Contention
from harness.network.iperf import Pair
from harness.network.links import NetworkError
from harness.network.probe import PAYLOAD_SHARE
from harness.network.sockets import Sockets
from harness.network.star import Star
from harness.records import Events, read_events
from tests.network.inside import Flat, inside, start
from tests.network.test_rootless import as_user, interpreter

RATE_MBIT = 50.0


class Competition:
    """A star of 50 Mbit/s links and what competes on them: node 0 sends to every other one."""

    def __init__(self, network: Any, folder: Path, controls: Sequence[str] | None) -> None:
        self.network, self.folder, self._run_dir = network, folder / "contention", folder
        sender = network.nodes[0].namespace
        pairs = [
            Pair(f"to{k}", sender, network.nodes[k].namespace, network.addresses[k])
            for k in range(1, len(network.addresses))
        ]
        began = time.monotonic()
        self.contention = Contention(
            self.folder, pairs, Events(folder), lambda: time.monotonic() - began, controls
        )

    def told(self, event: str) -> list[dict]:
        return [line for line in read_events(self._run_dir) if line["event"] == event]

    def flowing(self) -> int:
        return len(self.told("flow_started")) - len(self.told("flow_stopped"))

    def reach(self, flows: int, planned_s: float = 0.0) -> None:
        """Want `flows`, and wait until all pairs together have them."""
        self.contention.want(flows, planned_s)
        pairs = len(self.network.addresses) - 1
        self.wait_for(lambda: self.flowing() == flows * pairs)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.contention.error is None, self.contention.error
            assert time.monotonic() < deadline, f"waited {seconds} s, {self.flowing()} flows"
            time.sleep(0.002)


@contextmanager
def competing(nodes: int = 2, controls: Sequence[str] | None = None) -> Iterator[Competition]:
    with TemporaryDirectory() as folder, Star().up(nodes, Flat(RATE_MBIT), 1.0) as network:
        yield Competition(network, Path(folder), controls)
        assert processes("iperf3") == [], processes("iperf3")


def processes(name: str) -> list[int]:
    """Ids of all `name` that there are in this pid namespace, ended and not collected ones too."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/comm")
        if path.read_text().strip() == name
    ]


def role(pid: int) -> str:
    return "server" if b"-s" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") else "client"


@contextmanager
def sending(network: Any) -> Iterator[int]:
    """A TCP connection that sends from node 0 to node 1 without a pause; yields its port."""
    with network.entered(1):
        listener = socket.create_server((network.addresses[1], 0))
    with network.entered(0):
        sender = socket.create_connection(listener.getsockname())
    receiver, _ = listener.accept()
    done = threading.Event()

    def send() -> None:
        try:
            while not done.is_set():
                sender.sendall(bytes(1 << 16))
        except OSError:
            assert done.is_set()

    def receive() -> None:
        while receiver.recv_into(bytearray(1 << 18)):
            pass

    threads = [threading.Thread(target=run, daemon=True) for run in (send, receive)]
    for thread in threads:
        thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        sender.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for end in (sender, receiver, listener):
            end.close()


def rates_mbit(network: Any, seconds: float) -> dict[int, float]:
    """Payload rate of every connection that node 0 opened, by the port it goes to."""
    sockets, began = Sockets(network.nodes[0].namespace), time.monotonic()

    def sent() -> dict[tuple[int, int], int]:
        return {(c.local_port, c.port): c.sent_bytes for c in sockets.connections()}

    before = sent()
    time.sleep(seconds)
    after, took_s = sent(), time.monotonic() - began
    sockets.close()
    found: dict[int, float] = {}
    for key in before:
        found[key[1]] = found.get(key[1], 0) + (after[key] - before[key]) / 125_000 / took_s
    return found


@inside
def test_flows_share_the_link_with_another_and_fill_it_together() -> None:
    payload_mbit = RATE_MBIT * PAYLOAD_SHARE
    with competing() as here:
        with sending(here.network) as port:
            rates_mbit(here.network, 0.5)  # slow start
            alone = rates_mbit(here.network, 1.0)[port]
            assert 0.95 <= alone / payload_mbit <= 1.05, alone
            here.reach(3)
            rates_mbit(here.network, 0.5)
            shared = rates_mbit(here.network, 3.0)
            assert len(shared) == 4 and shared[port] < 0.7 * alone, shared
            assert all(rate > 0.02 * payload_mbit for rate in shared.values()), shared
            assert 0.95 <= sum(shared.values()) / payload_mbit <= 1.05, shared
        here.contention.stop()


@inside
def test_the_number_of_flows_follows_what_is_wanted_and_all_of_it_is_told() -> None:
    with competing(nodes=3) as here:
        assert not here.folder.exists()
        for flows, planned_s in ((3, 1.5), (1, 2.5), (2, 3.5), (0, 4.5)):
            here.reach(flows, planned_s)
            assert len(processes("iperf3")) == 2 * 2 * flows  # two pairs, two processes
        records = here.contention.stop()
        started, stopped = here.told("flow_started"), here.told("flow_stopped")
        assert sorted({e["planned_s"] for e in started}) == [1.5, 3.5], started
        assert sorted({e["planned_s"] for e in stopped}) == [2.5, 4.5], stopped
        names = {f"flow{n}_to{k}" for n in range(4) for k in (1, 2)}
        assert {r.name for r in records} == {e["flow"] for e in started} == names
        ended = {e["flow"]: e["time_s"] for e in stopped}
        for record in records:
            assert record.pair == record.name.split("_")[1]
            assert 0 < record.started_s < record.stopped_s == ended[record.name], record
        # the first to start is the last to go
        assert [r.name[:5] for r in records[:4]] != ["flow0"] * 4 and ended["flow0_to1"] > 0
        last = max(ended[name] for name in ended if name.startswith(("flow1", "flow2")))
        assert last < min(ended["flow0_to1"], ended["flow0_to2"]), ended


@inside
def test_counts_agree_with_the_shaper_and_every_flow_has_its_json() -> None:
    with competing(controls=["reno", "cubic"]) as here:
        before = here.network.counters()["up0"].bytes
        here.reach(3)
        rates_mbit(here.network, 2.5)
        here.reach(0)
        records = here.contention.stop()
        passed = (here.network.counters()["up0"].bytes - before) * PAYLOAD_SHARE
        sent = sum(record.sent_bytes for record in records)
        received = sum(record.received_bytes or 0 for record in records)
        assert 0.97 <= sent / passed <= 1.02 and 0.95 <= received / passed <= 1.0, (sent, passed)
        total_mbit = sum(record.mean_mbit for record in records)
        assert 0.9 <= total_mbit / (RATE_MBIT * PAYLOAD_SHARE) <= 1.1, records
        for number, control in enumerate(["reno", "cubic", "reno"]):
            [record] = [r for r in records if r.name == f"flow{number}_to1"]
            said = json.loads((here.folder / f"{record.name}.json").read_text())
            heard = json.loads((here.folder / f"{record.name}.server.json").read_text())
            assert record.congestion_control == said["end"]["sender_tcp_congestion"] == control
            assert len(said["intervals"]) >= 2 and len(heard["intervals"]) >= 2
            assert said["end"]["sum_sent"]["bytes"] >= record.sent_bytes
        assert len(list(here.folder.iterdir())) == 6, "empty files are left"


@inside
def test_changes_faster_than_a_flow_begins_end_in_what_was_wanted_last() -> None:
    choice = random.Random(7)
    with competing() as here:
        for tick in range(60):
            longest_s = time.monotonic()
            here.contention.want(choice.randrange(5), tick * 0.01)
            assert time.monotonic() - longest_s < 0.5, "want() blocked"
            time.sleep(choice.random() * 0.02)
        here.contention.want(2, 1.0)
        here.wait_for(lambda: here.flowing() == 2 and len(processes("iperf3")) == 4)
        here.contention.want(0, 2.0)
        here.contention.want(2, 2.1)
        here.contention.want(4, 2.2)
        assert here.contention.stop() is not None  # while it may be beginning flows


@inside
def test_stopping_while_flows_begin_leaves_nothing() -> None:
    for wait_s in (0.0, 0.005, 0.01, 0.02, 0.05):
        with competing() as here:
            here.contention.want(4, 0.0)
            time.sleep(wait_s)
            here.contention.stop()
            assert here.flowing() == 0


def _kill_a(victim: str) -> str:
    """Kill -9 the `victim` of one of two flows; what is told of it."""
    with competing() as here:
        here.reach(2)
        os.kill([pid for pid in processes("iperf3") if role(pid) == victim][0], signal.SIGKILL)
        deadline = time.monotonic() + 10
        while here.contention.error is None:
            assert time.monotonic() < deadline, f"nobody noticed the death of a {victim}"
            time.sleep(0.002)
        with pytest.raises(NetworkError) as told:
            here.contention.stop()
        return str(told.value)


@inside
def test_a_killed_process_of_a_flow_is_an_error_that_names_it() -> None:
    for victim in ("client", "server"):
        told = _kill_a(victim)
        assert told.startswith(("competing flow0_to1", "competing flow1_to1")), told
        assert f"its iperf3 {victim} was killed by SIGKILL; it said: nothing" in told, told


@inside
def test_it_works_while_somebody_else_collects_every_child() -> None:
    done = threading.Event()

    def collect() -> None:
        while not done.is_set():
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pass

    thief = threading.Thread(target=collect)
    thief.start()
    try:
        with competing() as here:
            for flows in (2, 0, 1):
                here.reach(flows)
            assert len(here.contention.stop()) == 3
        assert "competing flow" in _kill_a("client")
    finally:
        done.set()
        thief.join()


@inside
def test_what_iperf3_says_of_its_failure_is_told() -> None:
    with competing() as here:
        # the server is bound to an address of another node
        pair = here.contention._pairs[0]
        here.contention._pairs = [pair._replace(address=here.network.addresses[0])]
        here.contention.want(1, 0.0)
        deadline = time.monotonic() + 10
        while here.contention.error is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        with pytest.raises(NetworkError, match=r"flow0_to1: its iperf3 server exited.*listener"):
            here.contention.stop()


@inside
def test_ports_that_are_taken_are_left_alone() -> None:
    with competing() as here:
        with here.network.entered(1):
            taken = [socket.create_server((here.network.addresses[1], p)) for p in (5201, 5203)]
        here.reach(2)
        assert set(rates_mbit(here.network, 0.01)) == {5202, 5204}
        here.contention.stop()
        for listener in taken:
            listener.close()
        with here.network.entered(1):
            socket.create_server((here.network.addresses[1], 5202)).close()  # it is free again


@inside
def test_wrong_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match="congestion_control must be one of .*got 'nosuch'"):
        with competing(controls=["reno", "nosuch"]):
            pass
    with competing() as here:
        with pytest.raises(ValueError, match="competing flows must be >= 0, got -1 at 3.0 s"):
            here.contention.want(-1, 3.0)
        assert here.contention.stop() == [] and not here.folder.exists()


@pytest.mark.network
def test_an_ordinary_user_gets_the_same_flows() -> None:
    python, reason = interpreter()
    if not python:
        pytest.skip(f"no user namespace with a python in it: {reason}")
    law = test_counts_agree_with_the_shaper_and_every_flow_has_its_json
    arguments = ["-m", "tests.network.inside", law.__module__, law.__name__]
    done = start(python, arguments, before=as_user(), mapped=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_or_old_iperf3_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iperf.check()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"need iperf3 >= 3.9.*none.*apt-get install iperf3"):
        iperf.check()
    program = tmp_path / "iperf3"
    for version, fine in (("3.7", False), ("2.1.8", False), ("3.9", True), ("3.16", True)):
        program.write_text(f"#!/bin/sh\necho 'iperf {version} (cJSON 1.7)'\n")
        program.chmod(0o755)
        if fine:
            iperf.check()
        else:
            with pytest.raises(ValueError, match=f"says 'iperf {version}.*apt-get install"):
                iperf.check()
