"""What hurts a run: what is told, what is left of it, and what the same command does next.

The rest of the table is beside this file: kill -9 (test_kills), signals (test_signals), disks and
folders (test_storage), damaged results (test_damage), the wall clock (test_clock_step), two
commands at once (test_machine_lock, test_locks). `make faults` runs all of it.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.aftermath import PLAIN, SETTLED, SOON_S, Scene, remains, status, traces
from tests.launching import processes, runs, until

pytestmark = [pytest.mark.launch, pytest.mark.timeout(600)]

SOON = ("timeouts.exchange_s=8", "steps=20", "seed=0")
PATIENCE_S = 240
Ours = Callable[[str], int]


def stop_a_rank(ours: Ours) -> None:
    os.kill(ours("worker rank 1"), signal.SIGSTOP)


def stop_the_supervisor_for_a_while(ours: Ours) -> None:
    supervisor = ours("harness: supervisor of")
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(1)  # of its standing still
    os.kill(supervisor, signal.SIGCONT)


def in_the_switch(ours: Ours, *words: str) -> None:
    inside = ["nsenter", "--target", str(ours("harness: supervisor of")), "--net"]
    subprocess.run([*inside, *words], check=True)


def take_a_link_down(ours: Ours) -> None:
    in_the_switch(ours, "ip", "link", "set", "p1", "down")


def replace_a_shaper(ours: Ours) -> None:
    in_the_switch(ours, "tc", "qdisc", "replace", "dev", "p1", "root", "pfifo")


def leave_a_rank_no_memory(ours: Ours) -> None:
    """What it allocates from now on has one page, by a control group, where there are such."""
    if not MEMORY.is_dir():
        pytest.skip(f"no control groups of memory at {MEMORY}")
    group = MEMORY / GROUP
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(os.sysconf("SC_PAGE_SIZE")))
    (group / "cgroup.procs").write_text(str(ours("worker rank 1")))


MEMORY = Path("/sys/fs/cgroup/memory")  # of the first version of control groups
GROUP = f"gradnet-law-{os.getpid()}"


@pytest.fixture
def no_group_is_left() -> Iterator[None]:
    """The control group goes with the test that made it, however that ends."""
    yield
    for group in MEMORY.glob(GROUP):
        until(lambda: not (MEMORY / GROUP / "cgroup.procs").read_text(), "an empty group", SOON_S)
        group.rmdir()


UNDER_WAY: dict[Callable[[Ours], None], tuple[tuple[str, ...], str]] = {  # states, what is told
    stop_a_rank: (("failed",), r"^rank 1 is stopped \(SIGSTOP\); rank 0: .*Timed out"),
    stop_the_supervisor_for_a_while: (SETTLED, ""),
    take_a_link_down: (("failed", "invalid"), "^link down1 was changed from outside"),
    leave_a_rank_no_memory: (("failed",), "^rank 1 was killed by SIGKILL: out of memory"),
    replace_a_shaper: (("failed", "invalid"), "down1"),
}
SHORT = (stop_a_rank,)  # of which `make test` is content


def long_form(faults: dict) -> list:
    return [
        pytest.param(each, marks=() if each in SHORT else pytest.mark.faults) for each in faults
    ]


def does_it_again(scene: Scene, overrides: Sequence[str], before: Sequence[str] = ()) -> None:
    """The same command, with nothing in its way, ends well."""
    output, _ = scene.start(*overrides).communicate(timeout=PATIENCE_S)
    [run] = runs(scene.results)
    assert status(run)["state"] in SETTLED, output


@pytest.mark.usefixtures("no_group_is_left")
@pytest.mark.parametrize("fault", long_form(UNDER_WAY))
def test_a_run_that_is_hit_says_by_what_and_leaves_nothing(fault, tmp_path):
    states, said = UNDER_WAY[fault]
    with Scene(tmp_path, None) as scene:
        running = scene.start(*PLAIN, *SOON)
        run = scene.under_way()
        seen = traces(running.pid)

        def ours(pattern: str) -> int:
            return max(set(processes(pattern)) & set(seen.processes))

        fault(ours)
        scene.open()
        output, _ = running.communicate(timeout=PATIENCE_S)
        told = scene.settled(run)
        assert told["state"] in states, output
        assert re.search(said, told["error"] or ""), told["error"]
        assert "Traceback" not in output.partition("--- traceback of rank")[0], output
        until(lambda: not remains(seen), "its processes end", SOON_S)
        assert not scene.left_behind()
        does_it_again(scene, (*PLAIN, *SOON))


TINY_SHM = 'mount -t tmpfs -o size=4k tmpfs /dev/shm && cat /dev/zero > /dev/shm/full; exec "$@"'
FIXED_SHM = 'mount -t tmpfs -o ro tmpfs /dev/shm; exec "$@"'
FROM_THE_START: dict[str, tuple[list[str], str]] = {  # what it is started by, what is told
    "shared memory": (["unshare", "--mount", "sh", "-c", TINY_SHM, "sh"], "No space left"),
    "read-only shared memory": (["unshare", "--mount", "sh", "-c", FIXED_SHM, "sh"], "Read-only"),
    "descriptors": (["prlimit", "--nofile=48:48"], "Too many open files"),
    "fewer descriptors": (["prlimit", "--nofile=40:40"], "Too many open files"),
}


@pytest.mark.faults
@pytest.mark.parametrize("missing", FROM_THE_START)
def test_what_a_run_lacks_from_the_start_is_told(missing: str, tmp_path: Path) -> None:
    before, said = FROM_THE_START[missing]
    with Scene(tmp_path, None) as scene:
        scene.open()
        running = scene.start(*PLAIN, *SOON, before=before)
        output, _ = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 1 and said in output, output
        assert "Traceback" not in output.partition("--- traceback of rank")[0], output
        for run in runs(scene.results):
            assert status(run)["state"] == "failed" and said in status(run)["error"], output
            assert not processes(str(run))
        assert not scene.left_behind()
        does_it_again(scene, (*PLAIN, *SOON))
