"""What asks a run to end: it ends in order, at once when asked twice, and the command goes on."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.aftermath import PLAIN, SETTLED, SOON_S, Scene, finished_run, status, traces
from tests.launching import processes, runs, until

pytestmark = pytest.mark.launch

SWEEP = (*PLAIN, "seed=0,1")
INTERRUPTED = 130  # exit status


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One results folder for all laws: each is the same command again, after another fault."""
    folder = tmp_path_factory.mktemp("signals")
    with Scene(folder, finished_run(folder / "before", *PLAIN)) as scene:
        yield scene


@pytest.fixture
def scene(results: Scene) -> Iterator[Scene]:
    """Where nothing goes on of what a law before has started."""
    yield results
    results.end()


def ended(scene: Scene, running: subprocess.Popen[str], run: Path, seen: object) -> str:
    """What it printed, once it has ended as an interrupted run has to."""
    output, _ = running.communicate(timeout=SOON_S)
    assert running.returncode == INTERRUPTED, output
    assert "Traceback" not in output and "goes on from here" in output
    assert scene.settled(run)["state"] == "interrupted"
    assert "stopped by the user" in status(run)["error"]
    scene.check(seen)
    return output


def setting_up(scene: Scene) -> Path | None:
    """The run whose supervisor has begun to set its network up."""
    for run in runs(scene.results):
        if status(run)["state"] == "running" and (run / "events.jsonl").exists():
            return run
    return None


def starting(scene: Scene) -> Path | None:
    """The run whose workers have begun, before step 0."""
    run = setting_up(scene)
    return run if run and (run / "logs" / "rank1.log").exists() else None


def pipes(process: int) -> int:
    """How many ends of pipes it has open: one fewer once it has told its supervisor to stop."""
    count = 0
    for path in list(Path(f"/proc/{process}/fd").iterdir()):
        with suppress(FileNotFoundError):  # it has just been closed
            count += os.readlink(path).startswith("pipe:")
    return count


def test_ctrl_c_under_way_and_nohup_before_it(scene: Scene) -> None:
    running = scene.start(*SWEEP, before=["nohup"])
    run = scene.under_way()
    seen = traces(running.pid)
    running.send_signal(signal.SIGHUP)
    running.send_signal(signal.SIGINT)
    ended(scene, running, run, seen)


def test_ctrl_c_while_the_network_is_set_up(results: Scene, tmp_path: Path) -> None:
    """Its links would be probed for longer than all of this takes, so it is not one of the rest."""
    with Scene(tmp_path, results.finished) as scene:
        running = scene.start(*SWEEP, "network.probe_s=20")
        run = until(lambda: setting_up(scene), "network set-up")
        seen = traces(running.pid)
        running.send_signal(signal.SIGINT)
        ended(scene, running, run, seen)
        assert not (run / "logs" / "rank0.log").exists()


def test_sigterm_before_step_0(scene: Scene) -> None:
    running = scene.start(*SWEEP, GATE_AT="start")
    run = until(lambda: starting(scene), "workers that start")
    seen = traces(running.pid)
    running.send_signal(signal.SIGTERM)
    ended(scene, running, run, seen)
    assert "step_0" not in (run / "events.jsonl").read_text()


def test_a_second_ctrl_c_kills_at_once_what_does_not_end(scene: Scene) -> None:
    running = scene.start(*SWEEP)
    run = scene.under_way()
    seen = traces(running.pid)
    stopped = max(set(processes("harness: supervisor of")) & set(seen.processes))
    os.kill(stopped, signal.SIGSTOP)
    before = pipes(running.pid)
    try:
        running.send_signal(signal.SIGINT)
        until(lambda: pipes(running.pid) < before, "the first one, passed on")
        running.send_signal(signal.SIGINT)
        ended(scene, running, run, seen)
    finally:  # where it was not killed, it may end and give the machine's lock back
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)


def show(terminal: int, until: int) -> None:
    """Read what is written to `terminal`, as its window does, until the other end of `until` goes.

    Who writes to a terminal that nobody reads waits after 8 KB.
    """
    while until not in (ready := select.select([terminal, until], [], [])[0]):
        assert terminal in ready
        os.read(terminal, 1 << 16)
    os.close(until)


def test_a_closed_terminal_ends_the_run_in_order(scene: Scene) -> None:
    terminal, end = os.openpty()
    running = scene.start(*SWEEP, terminal=end)
    os.close(end)
    reading, told = os.pipe()
    shown = threading.Thread(target=show, args=(terminal, reading), daemon=True)
    shown.start()
    run = scene.under_way()
    seen = traces(running.pid)
    os.close(told)
    shown.join()
    os.close(terminal)
    running.wait(SOON_S)
    assert running.returncode == INTERRUPTED
    assert scene.settled(run)["state"] == "interrupted"
    scene.check(seen)


def test_ctrl_c_between_two_runs_starts_no_other(scene: Scene) -> None:
    before = {run: status(run) for run in runs(scene.results)}
    running = scene.start(*SWEEP, before=[sys.executable, "-m", "tests.between"])
    output, _ = running.communicate(timeout=SOON_S)
    assert running.returncode == INTERRUPTED and "Traceback" not in output, output
    assert {run: status(run) for run in runs(scene.results)} == before
    scene.intact()


def test_the_same_command_completes_after_all_that(scene: Scene) -> None:
    scene.open()
    running = scene.start(*SWEEP)
    output, _ = running.communicate(timeout=120)
    assert "skipped" in output and "Traceback" not in output
    assert all(status(run)["state"] in SETTLED for run in runs(scene.results)), output
    scene.intact()
