"""kill -9 of any process of a run: told truly, ended soon, nothing left, and the sweep goes on."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.locks import holder, machine_lock
from tests.aftermath import (
    PLAIN,
    SETTLED,
    SOON_S,
    Scene,
    finished_run,
    remains,
    status,
    traces,
    traces_of_run,
)
from tests.launching import processes, until

pytestmark = [pytest.mark.launch, pytest.mark.timeout(600)]  # one sweep is for all laws

FLOWS = ("profile=contended", "profile.of.rate_mbit=200", "profile.parallel=1")
VICTIMS = {  # by what their command line says, and what the error must name
    "agent": ("torchrun agent of node 1", "agent of node 1 was killed by SIGKILL"),
    "worker": ("worker rank 1", "rank 1 was killed by SIGKILL"),
    "supervisor": ("harness: supervisor of", "supervisor was killed by SIGKILL"),
    "enclosure": ("harness: enclosure of", "supervisor was killed by SIGKILL"),
    "what forks them": ("harness: forks supervisors", "supervisor was killed by SIGKILL"),
    "client": ("iperf3 -c", r"competing flow\d+_\S+: its iperf3 client was killed by SIGKILL"),
    "server": ("iperf3 -s", r"competing flow\d+_\S+: its iperf3 server was killed by SIGKILL"),
}
TAKEN_PORTS = (29500, 5201)  # torchrun's and iperf3's, in namespaces that are not a run's
SEEDS = "seed=" + ",".join(map(str, range(len(VICTIMS) + 2)))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """One sweep, each of its runs hit in another place; how each ended, or what is wrong."""
    folder = tmp_path_factory.mktemp("kills")
    finished = finished_run(folder / "before", *FLOWS)
    with Scene(folder, finished) as scene, ExitStack() as held:
        for port in TAKEN_PORTS:
            held.enter_context(_occupied(port))
        running = scene.start(*FLOWS, SEEDS)
        ends = {victim: _hit(scene, running.pid, victim) for victim in VICTIMS}
        run = scene.under_way()
        seen = traces(running.pid)
        running.kill()
        output, _ = running.communicate()
        ends["runner"] = _end(scene, run, seen)
        scene.open()
        again = scene.start(*FLOWS, f"seed=0,{len(VICTIMS) + 1}")
        text, _ = again.communicate(timeout=120)
        yield ends | {"output": output, "again": text, "last": status(run)}


def _occupied(port: int) -> socket.socket:
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("0.0.0.0", port))
    taken.listen()
    return taken


def _hit(scene: Scene, runner: int, victim: str) -> dict | str:
    run = scene.under_way()
    pattern, _ = VICTIMS[victim]
    ours = until(lambda: set(processes(pattern)) & set(traces(runner).processes), pattern)
    assert isinstance(ours, set)
    hit = max(ours)  # of competing flows the youngest
    seen = traces_of_run(runner, hit)
    os.kill(hit, signal.SIGKILL)
    return _end(scene, run, seen)


def _end(scene: Scene, run: Path, seen: object) -> dict | str:
    """Status of the run; a text when it has left something, or harmed another run."""
    told = scene.settled(run)
    try:
        # a sweep's next run has begun meanwhile, with another lock and interfaces of its own
        scene.check(seen)
    except AssertionError as left:
        return str(left)
    return told


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_9_fails_the_run_by_name_and_leaves_nothing(victim: str, sweep: dict) -> None:
    assert isinstance(sweep[victim], dict), sweep[victim]
    assert sweep[victim]["state"] == "failed"
    assert re.search(VICTIMS[victim][1], sweep[victim]["error"]), sweep[victim]["error"]
    assert sweep[victim]["error"] in sweep["output"]


def test_kill_9_of_the_runner_interrupts_the_run_and_leaves_nothing(sweep: dict) -> None:
    assert isinstance(sweep["runner"], dict), sweep["runner"]
    assert sweep["runner"]["state"] == "interrupted"
    assert "the runner stopped or died" in sweep["runner"]["error"]


@pytest.mark.parametrize(
    "stopped",
    [
        ("harness: supervisor of", "harness: enclosure of", "harness: forks supervisors"),
        pytest.param(("harness: supervisor of",), marks=pytest.mark.faults),
    ],
    ids=len,
)
def test_kill_9_of_the_runner_leaves_nothing_of_a_run_that_is_stopped(tmp_path, stopped):
    """Processes, namespaces and the machine's lock are gone, though none of them could end."""
    with Scene(tmp_path, None) as scene:
        running = scene.start(*PLAIN, "seed=0")
        run = scene.under_way()
        seen = traces(running.pid)
        ours = [pid for title in stopped for pid in processes(title) if pid in seen.processes]
        assert len(ours) == len(stopped)
        for pid in ours:
            os.kill(pid, signal.SIGSTOP)
        running.kill()
        until(lambda: not remains(seen), "the end of a run that was stopped", SOON_S)
        assert holder(machine_lock()) is None
        assert status(run)["state"] == "interrupted"
        assert "the supervisor did not end within" in status(run)["error"]


def test_the_same_command_completes_after_all_that(sweep: dict) -> None:
    assert "skipped" in sweep["again"]
    assert sweep["last"]["state"] in SETTLED, sweep["again"]


def test_ports_taken_outside_do_not_touch_a_run(sweep: dict) -> None:
    """They were taken all the while; torchrun and iperf3 listened on the same ones."""
    assert sweep["last"]["state"] in SETTLED, sweep["again"]
    assert "in use" not in sweep["output"] + sweep["again"]
