"""Starts a server and its trainers, each a process of its own on its node, and sees them end.

No torchrun: its agents end all ranks when one ends, and asynchronous trainers go on without one.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from setproctitle import setproctitle

from harness.clock import Clock
from harness.config.run import Run
from harness.emulation.network import Network
from harness.engine.parameter_server import processes
from harness.engine.parameter_server.dead_ranks import DeadRanks
from harness.engine.parameter_server.transport import Process
from harness.records.run_directory import Events, read_events
from harness.runner import limits
from harness.runner.agents import Agents

LEAST_TIMEOUT_S, PATIENCE = 60.0, 10  # of a session; times all models at the lowest rate


def start(run_dir: Path, run: Run, network: Network, clock: Clock) -> "Crew":
    """Fork all processes of the run; node `workers` is the server's."""
    layout, workers = run.server, run.workers
    dead_ranks = DeadRanks(workers)
    timeout_s = session_timeout_s(run)
    process = Process(run_dir, network.addresses[workers], clock, timeout_s, dead_ranks)
    crew = Crew(
        run_dir=run_dir,
        asked=run,
        workers=workers,
        look_elsewhere=network.check,
        process=process,
        entered=network.entered,
        goes_on=layout.mode == "async",
        restarts=[layout.restarts] * workers,
    )
    for node in (workers, *range(workers)):
        crew.fork(node, again=False)
    return crew


def session_timeout_s(run: Run) -> float:
    """Real seconds that either end of a session may be silent; generous, as slow is not dead.

    A server may have to send its model to all threads at once.
    """
    layout = run.server
    if (told := layout.session_timeout_s or run.timeouts.exchange_s) is not None:
        return told
    entries = sum(parameter.numel() for parameter in run.shapes().parameters())
    bits = 32 * entries * run.workers * layout.threads
    lowest = 1e6 * run.profile.extremes().lowest_mbit / run.emulation.dilation
    return max(LEAST_TIMEOUT_S, PATIENCE * bits / lowest)


@dataclass(kw_only=True)
class Crew(Agents):
    """The processes of a run, by id. `endings` has nothing before an end that is the run's."""

    asked: Run
    process: Process
    entered: Callable[[int], AbstractContextManager[None]]
    goes_on: bool  # without a trainer that has died
    restarts: list[int]  # that are left, by rank
    left: dict[int, int] = field(default_factory=dict)  # node -> exit code, of trainers

    def fork(self, node: int, again: bool) -> None:
        """Start the process of `node` there; `again`: in the place of one that has died."""
        with self.entered(node):
            pid = os.fork()
            if pid == 0:  # inside the block: leaving it would leave the namespace
                self._be(node, again)
        self.running[pid] = node

    def _be(self, node: int, again: bool) -> None:
        status = 1
        try:
            limits.confine()
            setproctitle(f"harness: {self.named(node)}")
            if node == self.workers:
                processes.serve(self.asked, self.process)
            else:
                processes.train(self.asked, self.process, node, again)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def named(self, node: int) -> str:
        return "parameter server" if node == self.workers else f"trainer rank {node}"

    def all_ranks_finished(self) -> bool:
        """True once the server has finished: it waits for trainers that are to come."""
        events = read_events(self.run_dir)
        return any(e["event"] == "rank_finished" and e["rank"] == self.workers for e in events)

    def ended(self, node: int, code: int) -> None:
        """A trainer's end may be no matter; the server's is always the run's."""
        if node == self.workers:
            self.endings |= {node: code, **self.left}
            return
        self.left[node] = code
        over = self.workers in self.endings or not self.process.clock.ready
        if over or (code != 0 and not self.goes_on):
            self.endings[node] = code
        elif code != 0:
            self._do_without(node, code)

    def _do_without(self, rank: int, code: int) -> None:
        events, time_s = Events(self.run_dir), self.process.clock.time_s()
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with status {code}"
        )
        if self.restarts[rank]:
            self.restarts[rank] -= 1
            del self.left[rank]
            events.append("trainer_restarted", time_s, rank=rank, how=how)
            self.fork(rank, again=True)
            return
        events.append("trainer_lost", time_s, rank=rank, how=how)
        self.process.dead_ranks.add(rank)
        if len(self.left) == self.workers and all(self.left.values()):
            self.endings |= self.left
