"""Whoever meddles with a run under way, or takes its machine, spoils it, and the cause is told."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from harness.runner.lateness import MOST_BOUNDED_SHARE
from harness.runner.validity_checks import MOST_OTHERS_UNFELT_SHARE
from tests.aftermath import SETTLED, Scene, status
from tests.launching import TINY, harness, own_reasons, processes, runs

pytestmark = pytest.mark.launch

RUN = ("profile=static", "profile.rate_mbit=200", "network.sample_s=0.1", "seed=0")
MEASURED = "emulation.compute=measured"
ENOUGH_S = 3.0  # of a shorter run nothing is said about its processors
FLOOD = """
import socket, time
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(100):
    for _ in range(100):
        to.sendto(bytes(1400), ("10.77.0.2", 9))
    time.sleep(0.01)
"""  # 14 MB in a second or more
SECOND_RUN = """
import sys, torch
from torch import distributed
distributed.init_process_group("gloo", "tcp://10.77.0.1:29777", rank=int(sys.argv[1]), world_size=2)
for _ in range(20):
    distributed.all_reduce(torch.ones(250_000))
"""  # 20 MB each way


SUPERVISOR, RANK = "harness: supervisor of", "harness: worker rank"


def of(run: Path, title: str) -> int:
    """The process of that title which belongs to `run`: other runs have theirs."""
    [supervisor] = _titled(f"harness: supervisor of {run}")
    space = os.readlink(f"/proc/{supervisor}/ns/pid_for_children")
    [found] = [pid for pid in _titled(title) if os.readlink(f"/proc/{pid}/ns/pid") == space]
    return found


def _titled(title: str) -> list[int]:
    found = processes(title)
    return [p for p in found if Path(f"/proc/{p}/cmdline").read_bytes().startswith(title.encode())]


def inside(run: Path, title: str, *command: str) -> subprocess.Popen[bytes]:
    """Start `command` in the network namespace of a process of `run`."""
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    target = f"--target={of(run, title)}"
    own_interface = os.environ | {"GLOO_SOCKET_IFNAME": "eth0"}
    return subprocess.Popen(["nsenter", "--net", *user, target, *command], env=own_interface)


def shell(run: Path, commands: str) -> None:
    """Run `commands` where the links of `run` are shaped."""
    assert inside(run, SUPERVISOR, "sh", "-ec", commands).wait() == 0


@contextmanager
def commands(run: Path, commands: str) -> Iterator[None]:
    shell(run, commands)
    yield


ANOTHER_RATE = "tc class change dev u0 parent 1: classid 1:1 htb rate 20mbit"
LINK_DOWN = "ip link set u0 down; sleep 0.1; ip link set u0 up"
SAME_QDISC = "tc qdisc replace dev u0 parent 1:1 handle 10: bfifo limit 1mb"
SLOWER_NODE = "tc qdisc add dev eth0 root tbf rate 85mbit burst 20k limit 200k"
POLICED_NODE = "tc qdisc add dev eth0 ingress; tc qdisc del dev eth0 ingress"
NO_SHAPER = "tc qdisc replace dev u0 root pfifo"


@contextmanager
def at_a_node(run: Path, commands: str) -> Iterator[None]:
    assert inside(run, f"{RANK} 0", "sh", "-ec", commands).wait() == 0
    yield


@contextmanager
def other_traffic(run: Path) -> Iterator[None]:
    assert inside(run, f"{RANK} 0", sys.executable, "-c", FLOOD).wait() == 0
    yield


@contextmanager
def a_second_run(run: Path) -> Iterator[None]:
    ranks = (0, 1)
    started = [inside(run, f"{RANK} {n}", sys.executable, "-c", SECOND_RUN, str(n)) for n in ranks]
    assert [process.wait() for process in started] == [0, 0]
    yield


@contextmanager
def stopped(run: Path, title: str) -> Iterator[None]:
    process = of(run, title)
    os.kill(process, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(process, signal.SIGCONT)
    yield


a_stopped_player = partial(stopped, title=SUPERVISOR)  # it is a thread of the supervisor
a_stopped_rank = partial(stopped, title=f"{RANK} 1")


@contextmanager
def hogs(nice: int) -> Iterator[None]:
    """Every processor is busy."""
    loop = ["nice", "-n", str(nice), sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(loop) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def long(*parameters: object) -> object:
    return pytest.param(*parameters, marks=pytest.mark.faults)


@pytest.mark.parametrize(("meddle", "said"), [
    (partial(commands, commands=ANOTHER_RATE), "link up0 was changed from outside at "),
    (partial(commands, commands=LINK_DOWN), "its interface was down"),
    (partial(at_a_node, commands=SLOWER_NODE),
     "network changed: interface eth0 of node 0 has qdisc tbf "),
    long(partial(at_a_node, commands=POLICED_NODE),
         "link eth0 of node 0 was changed from outside at "),
    long(partial(commands, commands=SAME_QDISC), "a qdisc was set"),
    long(a_stopped_player, "the player stood still"),
    (other_traffic, "other traffic shared it"),
    long(a_second_run, "other traffic shared it"),
    (a_stopped_rank, "rank 1 was stopped by a signal for "),
])  # fmt: skip
def test_a_run_that_is_meddled_with_is_invalid_and_says_why(tmp_path, meddle, said):
    with Scene(tmp_path, None) as scene:
        running = scene.start(*RUN)
        run = scene.under_way()
        with meddle(run):
            says_why(scene, running, run, said)


@pytest.mark.parametrize(("nice", "more"), [long(0, (MEASURED,)), (19, (MEASURED,))])
def test_measured_computation_beside_busy_programs_is_invalid_and_says_why(tmp_path, nice, more):
    with Scene(tmp_path, None) as scene, hogs(nice):
        running = scene.start(*RUN, *more)
        run = scene.under_way()
        time.sleep(ENOUGH_S)
        says_why(scene, running, run, "other processes took ")


@pytest.mark.parametrize("nice", [0, long(19)])
def test_a_replay_beside_busy_programs_has_a_grade_by_its_bound(tmp_path, nice):
    """A pause of its own, at a gate, is not lateness: the bound alone decides."""
    with Scene(tmp_path, None) as scene, hogs(nice):
        running = scene.start(*RUN)
        run = scene.under_way()
        time.sleep(ENOUGH_S)
        scene.open()
        running.communicate(timeout=60)
    summary = json.loads((run / "summary.json").read_text())
    share, grade = summary["late_at_most_share"], summary["grade"]
    print(share, summary["reasons"])
    assert grade in ("valid", "bounded", "invalid") and share is not None
    assert (share <= MOST_BOUNDED_SHARE) == (not any("late by" in r for r in summary["reasons"]))


def says_why(scene: Scene, running: subprocess.Popen[str], run: Path, said: str) -> None:
    """To its end."""
    scene.open()
    output, _ = running.communicate(timeout=60)
    assert status(run)["state"] == "invalid", output
    reasons = json.loads((run / "summary.json").read_text())["reasons"]
    print(*reasons, sep="\n")
    assert any(said in reason for reason in reasons), reasons


@pytest.mark.faults
def test_a_run_whose_shaper_is_replaced_ends_at_once_and_says_why(tmp_path):
    with Scene(tmp_path, None) as scene:
        running = scene.start(*RUN)
        run = scene.under_way()
        shell(run, NO_SHAPER)
        output, _ = running.communicate(timeout=60)
        print(status(run)["error"])
        assert status(run)["state"] == "failed" and "up0" in status(run)["error"], output


def test_measured_computation_that_has_the_machine_to_itself_is_valid(tmp_path):
    """Its own ranks keep the processors busy, and are no others; who has it not is told so."""
    done = harness(*TINY, *RUN, MEASURED, "steps=60", "batch_size=128", results=tmp_path)
    [run] = runs(tmp_path)
    assert status(run)["state"] in SETTLED, done.stdout + done.stderr
    summary = json.loads((run / "summary.json").read_text())
    if summary["proof"]["audit"]["cpu_others_share"] > MOST_OTHERS_UNFELT_SHARE:
        assert any("other processes took " in reason for reason in summary["reasons"])
    else:
        assert own_reasons(run) == [], done.stdout + done.stderr


@pytest.mark.parametrize(("period_s", "update_s"), [(0.05, 0.025), (0.004, 0.002)])
def test_a_square_that_no_player_can_follow_does_not_start(tmp_path, period_s, update_s):
    square = ("profile=square", f"profile.period_s={period_s}", f"network.update_s={update_s}")
    done = harness(*(part for part in TINY if "rate" not in part), *square, results=tmp_path)
    print(done.stderr)
    assert done.returncode != 0 and "update_s must be short beside what rates" in done.stderr
    assert runs(tmp_path) == []
