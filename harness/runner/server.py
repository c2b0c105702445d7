"""Starts a parameter server and its trainers, each a process on its own node.

torchrun is not used: its agents know no process that is not a rank of the process group.
"""

import os
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
from harness.engine.parameter_server.transport import Process
from harness.records.run_directory import read_events
from harness.runner import limits
from harness.runner.agents import Agents

LEAST_TIMEOUT_S, PATIENCE = 60.0, 10  # of silence; times all models at the lowest rate


def start(run_dir: Path, run: Run, network: Network, clock: Clock) -> "Crew":
    """Fork all processes of the run; node `workers` is the server's."""
    process = Process(run_dir, network.addresses[run.workers], clock, silence_s(run))
    crew = Crew(
        run_dir=run_dir,
        workers=run.workers,
        look_elsewhere=network.check,
        asked=run,
        process=process,
        entered=network.entered,
    )
    crew.fork_all()
    return crew


def silence_s(run: Run) -> float:
    """Return the real seconds that a trainer may be silent before it counts as lost.

    They are generous: a server may have to send its model to all threads at once.
    """
    if run.timeouts.exchange_s is not None:
        return run.timeouts.exchange_s
    entries = sum(parameter.numel() for parameter in run.shapes().parameters())
    bits = 32 * entries * run.workers * run.server.threads
    lowest_bits_per_s = 1e6 * run.profile.extremes().lowest_mbit / run.emulation.dilation
    return max(LEAST_TIMEOUT_S, PATIENCE * bits / lowest_bits_per_s)


@dataclass(kw_only=True)
class Crew(Agents):
    """Processes of a served run, by process id: trainers, and the server as node `workers`."""

    asked: Run
    process: Process
    entered: Callable[[int], AbstractContextManager[None]]
    codes: dict[int, int] = field(default_factory=dict, init=False)  # by node, of all that ended

    def fork_all(self) -> None:
        """Start the server, and then the trainers, each on its node."""
        for node in (self.workers, *range(self.workers)):
            with self.entered(node):
                pid = os.fork()
                if pid == 0:  # inside the block: leaving it would leave the namespace
                    self._be(node)
            self.running[pid] = node

    def _be(self, node: int) -> None:
        status = 1
        try:
            limits.confine()
            setproctitle(f"harness: {self.named(node)}")
            if self.asked.emulation.prefers_ranks:
                os.setsid()  # the kernel then gives each process a share of its own
            processes.perform(self.asked, self.process, node)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def named(self, node: int) -> str:
        return "parameter server" if node == self.workers else f"trainer rank {node}"

    def all_ranks_finished(self) -> bool:
        """Return True once the server has finished: it waits for all trainers."""
        events = read_events(self.run_dir)
        return any(e["event"] == "rank_finished" and e["rank"] == self.workers for e in events)

    def ended(self, node: int, code: int) -> None:
        """Record a process's exit code. A trainer's success counts once the server has ended."""
        self.codes[node] = code
        if code != 0 or self.workers in self.codes:
            self.endings |= self.codes
