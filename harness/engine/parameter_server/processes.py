"""The programs of the processes of a run with a parameter server: the server, and trainers."""

import os
from typing import Any

import torch

from harness.config.run import Run
from harness.engine.parameter_server.build import server_loop_of
from harness.engine.parameter_server.transport import Process
from harness.engine.training.build import build_loop
from harness.engine.training.rank_context import RankContext
from harness.engine.training.resume import resumed
from harness.engine.training.worker import finished, log_to, report
from harness.records.run_directory import Events


def serve(run: Run, process: Process) -> None:
    """Run the server; report a failure and exit the process."""
    log_to(process.run_dir / "logs" / "server.log")
    events = Events(process.run_dir)
    try:
        _serve(run, process, events)
    except BaseException as error:
        _give_up(events, run, run.workers, error)


def _serve(run: Run, process: Process, events: Events) -> None:
    rank = run.workers
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    server_loop = server_loop_of(run, context_of(run, process, rank))
    events.append("rank_ready", rank=rank, pid=os.getpid())
    server_loop.run()
    events.append("server_finished", process.clock.time_s(), **server_loop.store.counts())
    finished(events, process.clock, rank, server_loop)


def train(run: Run, process: Process, rank: int) -> None:
    """Run trainer `rank`; report a failure and exit the process."""
    log_to(process.run_dir / "logs" / f"rank{rank}.log")
    events = Events(process.run_dir)
    try:
        _train(run, process, rank, events)
    except BaseException as error:
        _give_up(events, run, rank, error)


def _train(run: Run, process: Process, rank: int, events: Events) -> None:
    threads = run.workers * run.server.threads
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // threads))
    torch.manual_seed(run.seed)
    trainer = build_loop(run, context_of(run, process, rank))
    events.append("rank_ready", rank=rank, pid=os.getpid())
    trainer.run()
    finished(events, process.clock, rank, trainer)


def context_of(run: Run, process: Process, rank: int) -> RankContext:
    """Return the context of a trainer's process, or of the server's."""
    nobody: Any = None
    return RankContext(
        run_dir=process.run_dir,
        rank=rank,
        leads=rank == run.workers,
        clock=process.clock,
        workers=nobody,
        device=torch.device("cpu"),
        together=nobody,
        data=run.dataset,
        begin=resumed(run.resume_from),
        transport=process,
    )


def _give_up(events: Events, run: Run, rank: int, error: BaseException) -> None:
    try:
        report(events, run, rank, error)
    finally:
        os._exit(1)  # finalization would keep sockets open, and the others waiting
