"""kill -9, and worse, of a trainer and of the server: processes as a run has them, on loopback."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest

from compressors import kernels
from harness.clock import Clock
from harness.engine.parameter_server.dead_ranks import DeadRanks
from harness.engine.parameter_server.transport import Process
from harness.records.run_directory import TABLES, Table, read_events
from harness.runner.agents import cause
from harness.runner.server import Crew
from tests.parameter_server.scenes import PATIENCE_S, run_of
from tests.ranks import free_port

PACED = ("emulation.compute=paced", "emulation.dilation=0.2", "model=mlp", "workers=2")
STEPS = 30
SILENT_S = 4.0  # and a session is given up


class Scene:
    """A server and two trainers, started as a supervisor does, and followed."""

    def __init__(self, folder: Path, *overrides: str, timeout_s: float = 20.0) -> None:
        asked = run_of(*PACED, f"steps={STEPS}", "eval_every=10", *overrides)
        layout, self.run, self.clock = asked.server, folder, Clock(0.2)
        (folder / "logs").mkdir()
        for name in TABLES:
            Table(folder, name).header()
        kernels.path()  # loaded here, not once in each process
        process = Process(folder, "127.0.0.1", self.clock, timeout_s, DeadRanks(2), free_port())
        self.crew = Crew(
            run_dir=folder,
            asked=asked,
            workers=2,
            look_elsewhere=lambda: None,
            process=process,
            entered=lambda node: nullcontext(),
            goes_on=layout.mode == "async",
            restarts=[layout.restarts] * 2,
        )
        for node in (2, 0, 1):
            self.crew.fork(node, again=False)
        self.reach(lambda: self.clock.ready)
        self.clock.start()

    def reach(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < end:
            self.crew.reap()
            time.sleep(0.01)
        assert condition(), self.crew

    def send(self, number: signal.Signals, node: int, after: int = 6) -> None:
        """A signal to the process of `node`, once so many pushes were applied."""
        self.reach(lambda: len(self.pushes()) >= after)
        [process] = [pid for pid, here in self.crew.running.items() if here == node]
        os.kill(process, number)

    def end(self) -> None:
        self.reach(lambda: self.crew.endings and not self.crew.running)

    def pushes(self) -> pd.DataFrame:
        path = self.run / "pushes.csv"
        return pd.read_csv(path) if path.exists() and path.stat().st_size else pd.DataFrame()

    def steps_of(self, rank: int) -> list[int]:
        pushes = self.pushes()
        return sorted(pushes[pushes["rank"] == rank].step)

    def events(self, name: str) -> list[dict]:
        return [event for event in read_events(self.run) if event["event"] == name]


def test_without_a_trainer_asynchronous_ones_go_on_and_it_is_told(tmp_path):
    scene = Scene(tmp_path, "method=dct_ps_async", "parallel.threads=2")
    scene.send(signal.SIGKILL, 1)
    scene.end()
    assert scene.crew.endings == {2: 0, 0: 0, 1: -signal.SIGKILL}
    assert scene.crew.all_ranks_finished()
    assert [event["how"] for event in scene.events("trainer_lost")] == ["was killed by SIGKILL"]
    assert scene.steps_of(0) == list(range(STEPS))
    [told] = scene.events("server_finished")
    assert told["applied"] == len(scene.pushes())
    assert told["missing"] == 2 * STEPS - len(scene.pushes()) > 0


def test_a_trainer_that_is_started_again_does_what_was_left(tmp_path):
    scene = Scene(tmp_path, "method=dct_ps_async", "parallel.restarts=1")
    scene.send(signal.SIGKILL, 1)
    scene.end()
    assert scene.crew.endings == {2: 0, 0: 0, 1: 0}
    assert len(scene.events("trainer_restarted")) == 1 and not scene.events("trainer_lost")
    assert scene.steps_of(0) == list(range(STEPS))
    done = scene.steps_of(1)
    assert len(done) == len(set(done)) >= STEPS - 1 and done[-1] == STEPS - 1


@pytest.mark.timed
def test_a_trainer_that_hung_comes_back_in_a_session_of_its_own(tmp_path):
    scene = Scene(tmp_path, "method=dct_ps_async", timeout_s=SILENT_S)
    scene.send(signal.SIGSTOP, 1)
    scene.reach(lambda: scene.events("session_lost"))
    scene.send(signal.SIGCONT, 1)
    scene.end()
    assert scene.crew.endings == {2: 0, 0: 0, 1: 0}
    lost = [event for event in scene.events("rejoins") if event["rank"] == 1]
    done = scene.steps_of(1)
    assert lost and len(done) == len(set(done)) >= STEPS - len(lost) and done[-1] == STEPS - 1


@pytest.mark.timed
def test_a_trainer_that_hangs_for_good_holds_nobody_up(tmp_path):
    scene = Scene(tmp_path, "method=dct_ps_async", "parallel.staleness_bound=1", timeout_s=SILENT_S)
    scene.send(signal.SIGSTOP, 1)
    scene.reach(lambda: 2 in scene.crew.endings)
    assert scene.crew.endings[2] == 0 and scene.steps_of(0) == list(range(STEPS))
    assert [event["rank"] for event in scene.events("trainer_lost")] == [1]
    scene.send(signal.SIGKILL, 1)
    scene.end()


@pytest.mark.parametrize("method", ["dct_ps", "dct_ps_async"])
def test_a_server_that_is_killed_ends_all_with_its_name(method, tmp_path):
    scene = Scene(tmp_path, f"method={method}")
    scene.send(signal.SIGKILL, 2)
    scene.end()
    assert scene.crew.endings == {2: -signal.SIGKILL, 0: 1, 1: 1}
    assert not scene.crew.all_ranks_finished()
    assert cause(scene.crew) == "the parameter server was killed by SIGKILL"
    reports = scene.events("rank_failed")
    assert {report["rank"] for report in reports} == {0, 1}
    for report in reports:
        assert report["peer"] and "ServerLost: the parameter server" in report["traceback"]


def test_a_synchronous_run_ends_with_the_trainer_that_was_killed(tmp_path):
    scene = Scene(tmp_path, "method=dct_ps")
    scene.send(signal.SIGKILL, 1)
    scene.end()
    assert cause(scene.crew) == "the trainer rank 1 was killed by SIGKILL"
    assert scene.crew.endings[2] == 1 and scene.crew.endings[0] == 1
    pushes = scene.pushes()
    assert (pushes.groupby("version").size() == 2).all()  # no half a round
