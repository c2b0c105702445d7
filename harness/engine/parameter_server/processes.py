"""Main programs of the processes of a run with a parameter server: the server or a trainer."""

import os
from typing import Any

import torch

from harness.config.run import Run
from harness.engine.parameter_server.build import server_loop_of
from harness.engine.parameter_server.transport import Process
from harness.engine.programs import build_loop
from harness.engine.training.rank_context import RankContext
from harness.engine.training.resume import resumed
from harness.engine.training.worker import finished, log_to, report
from harness.records.run_directory import Events


def perform(run: Run, process: Process, rank: int) -> None:
    """Run trainer `rank`, or the server if `rank` is `run.workers`; on failure exit the process."""
    is_server = rank == run.workers
    log_to(process.run_dir / "logs" / ("server.log" if is_server else f"rank{rank}.log"))
    events = Events(process.run_dir)
    try:
        threads = run.workers * run.server.threads
        torch.set_num_threads(1 if is_server else max(1, (os.cpu_count() or 1) // threads))
        torch.manual_seed(run.seed)
        context = context_of(run, process, rank)
        program: Any = server_loop_of(run, context) if is_server else build_loop(run, context)
        events.append("rank_ready", rank=rank, pid=os.getpid())
        program.run()
        if is_server:
            events.append("server_finished", process.clock.time_s(), **program.store.counts())
        finished(events, process.clock, rank, program)
    except BaseException as error:
        try:
            report(events, run, rank, error)
        finally:
            os._exit(1)  # finalization would keep sockets open, and the other processes waiting


def context_of(run: Run, process: Process, rank: int) -> RankContext:
    """Return the context of a trainer's or the server's process."""
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
