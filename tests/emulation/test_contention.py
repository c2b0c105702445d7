"""Competing flows really share a link, follow what is wanted, are counted, and leave nothing."""

import json
import os
import random
import signal
import socket
import threading
import time

import pytest

from harness.emulation import iperf
from harness.emulation.iperf import Sockets
from harness.emulation.links import NetworkError
from harness.emulation.probe import PAYLOAD_SHARE
from tests.emulation.competition import (
    RATE_MBIT,
    competing,
    processes,
    rate_mbit,
    role,
    sending,
)
from tests.emulation.inside import inside, start
from tests.emulation.test_rootless import as_user, interpreter


@inside
def test_flows_share_a_link_with_another_and_fill_it_together() -> None:
    payload_mbit = RATE_MBIT * PAYLOAD_SHARE
    with competing() as here, sending(here.network):  # they meet in the downlink of node 1
        rate_mbit(here.network, 2, 0.5)  # slow start
        alone = rate_mbit(here.network, 2, 1.0)
        assert 0.95 <= alone / payload_mbit <= 1.05, alone
        here.reach(4)
        rate_mbit(here.network, 2, 2.0)  # they find their shares
        before = here.network.counters()["down1"].bytes, here.network.counters()["up0"].bytes
        began = time.monotonic()
        shared = rate_mbit(here.network, 2, 4.0)
        took_s = time.monotonic() - began
        after = here.network.counters()["down1"].bytes, here.network.counters()["up0"].bytes
        total, theirs = (
            (now - then) * PAYLOAD_SHARE / 125_000 / took_s
            for then, now in zip(before, after, strict=True)
        )
        assert shared < 0.7 * alone, (shared, alone)
        assert 0.95 <= total / payload_mbit <= 1.05, (total, theirs, shared)
        assert 0.95 <= (theirs + shared) / payload_mbit <= 1.05, (theirs, shared)
        here.contention.stop()


@inside
def test_the_number_of_flows_follows_what_is_wanted_and_all_of_it_is_told() -> None:
    with competing(receivers=(1, 2)) as here:
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
        # the first to start are the last to go
        last = max(ended[name] for name in ended if name.startswith(("flow1", "flow2")))
        assert last < min(ended["flow0_to1"], ended["flow0_to2"]), ended


@inside
def test_counts_agree_with_the_shaper_and_every_flow_has_its_json() -> None:
    with competing(control="reno") as here:
        before = here.network.counters()["up0"].bytes
        here.reach(3)
        rate_mbit(here.network, 0, 2.5)
        here.reach(0)
        records = here.contention.stop()
        passed = (here.network.counters()["up0"].bytes - before) * PAYLOAD_SHARE
        sent = sum(record.sent_bytes for record in records)
        received = sum(record.received_bytes or 0 for record in records)
        assert 0.97 <= sent / passed <= 1.02 and 0.95 <= received / passed <= 1.0, (sent, passed)
        total = sum(record.mean_mbit for record in records) / (RATE_MBIT * PAYLOAD_SHARE)
        began = [record.started_s for record in records]
        alone = (max(began) - min(began)) / 2.5  # the first had the link to themselves for so long
        assert 0.9 <= total <= 1.1 + alone, records
        for number in range(3):
            [record] = [r for r in records if r.name == f"flow{number}_to1"]
            said = json.loads((here.folder / f"{record.name}.json").read_text())
            heard = json.loads((here.folder / f"{record.name}.server.json").read_text())
            assert record.congestion_control == said["end"]["sender_tcp_congestion"] == "reno"
            assert len(said["intervals"]) >= 2 and len(heard["intervals"]) >= 2
            written = said["end"]["sum_sent"]["bytes"]  # the last moment may be missing
            assert written >= 0.95 * record.sent_bytes, (written, record)
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
        sockets = Sockets(here.network.nodes[0].namespace)
        assert {connection.port for connection in sockets.connections()} == {5202, 5204}
        sockets.close()
        here.contention.stop()
        for listener in taken:
            listener.close()
        with here.network.entered(1):
            socket.create_server((here.network.addresses[1], 5202)).close()  # it is free again


@inside
def test_wrong_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match="congestion_control must be one of .*got 'nosuch'"):
        with competing(control="nosuch"):
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
    arguments = ["-m", "tests.emulation.inside", law.__module__, law.__name__, "root"]
    done = start(python, arguments, before=as_user(), mapped=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_or_old_iperf3_is_told_with_what_to_do(tmp_path, monkeypatch):
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
