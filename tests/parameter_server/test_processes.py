"""Signals to trainers and to the server: processes as in a run, on the loopback interface."""

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
from harness.engine.parameter_server.transport import Process
from harness.records.run_directory import TABLES, Table, read_events
from harness.runner.agents import cause
from harness.runner.server import Crew
from tests.parameter_server.scenes import PATIENCE_S, run_of
from tests.ranks import free_port

PACED = ("emulation.compute=paced", "emulation.dilation=0.2", "model=mlp", "workers=2")
STEPS = 30
SILENT_S = 4.0  # after which a trainer counts as lost


class Scene:
    """A server and two trainers, started and followed as by a supervisor."""

    def __init__(self, folder: Path, *overrides: str, timeout_s: float = 20.0) -> None:
        asked = run_of(*PACED, f"steps={STEPS}", "eval_every=10", *overrides)
        self.run, self.clock = folder, Clock(0.2)
        (folder / "logs").mkdir()
        for name in TABLES:
            Table(folder, name).header()
        kernels.path()  # loaded here, not once in each process
        process = Process(folder, "127.0.0.1", self.clock, timeout_s, free_port())
        self.crew = Crew(run_dir=folder, asked=asked, workers=2, look_elsewhere=lambda: None,
                         process=process, entered=lambda node: nullcontext())  # fmt: skip
        self.crew.fork_all()
        self.reach(lambda: self.clock.ready)
        self.clock.start()

    def reach(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < end:
            self.crew.reap()
            time.sleep(0.01)
        assert condition(), self.crew

    def send(self, number: signal.Signals, node: int, after: int = 6) -> None:
        """Send a signal to the process of `node`, once so many pushes were applied."""
        self.reach(lambda: len(self.pushes()) >= after)
        [process] = [pid for pid, here in self.crew.running.items() if here == node]
        os.kill(process, number)

    def end(self) -> None:
        self.reach(lambda: self.crew.endings and not self.crew.running)

    def pushes(self) -> pd.DataFrame:
        path = self.run / "pushes.csv"
        return pd.read_csv(path) if path.exists() and path.stat().st_size else pd.DataFrame()

    def events(self, name: str) -> list[dict]:
        return [event for event in read_events(self.run) if event["event"] == name]


@pytest.mark.parametrize("method", ["dct_ps", "dct_ps_async"])
def test_a_trainer_that_is_killed_ends_the_run_with_its_rank(method, tmp_path):
    scene = Scene(tmp_path, f"method={method}")
    scene.send(signal.SIGKILL, 1)
    scene.end()
    assert cause(scene.crew) == "the trainer rank 1 was killed by SIGKILL"
    assert scene.crew.endings == {2: 1, 0: 1, 1: -signal.SIGKILL}
    assert not scene.crew.all_ranks_finished()
    if method == "dct_ps":
        assert (scene.pushes().groupby("version").size() == 2).all()  # no half a round


@pytest.mark.timed
def test_a_trainer_that_hangs_ends_the_run_with_its_rank(tmp_path):
    scene = Scene(tmp_path, "method=dct_ps_async", timeout_s=SILENT_S)
    scene.send(signal.SIGSTOP, 1)
    scene.reach(lambda: {0, 2} <= set(scene.crew.endings))
    said = cause(scene.crew)
    assert "rank 1 is stopped (SIGSTOP)" in said
    assert "trainer rank 1 is lost: Timed out waiting 4 s for the other end" in said
    scene.send(signal.SIGKILL, 1)
    scene.end()


@pytest.mark.parametrize("method", ["dct_ps", "dct_ps_async"])
def test_a_server_that_is_killed_ends_the_run_with_its_name(method, tmp_path):
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
