"""Main function of a rank's process: build the run, train, report, and shut down in order."""

import gc
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from setproctitle import setproctitle

from harness.clock import Clock
from harness.config.backends import backend_for
from harness.config.run import Run
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.levels import TwoLevelWorkers
from harness.engine.exchange.processor_waits import ProcessorWaits
from harness.engine.exchange.stats import CollectivesTable
from harness.engine.pipeline.channel import GroupChannel, PeerLost
from harness.engine.pipeline.mesh import ACROSS, ALONG, PacketPipelineGroup, everyone, meshed
from harness.engine.programs import build_loop
from harness.engine.training.failure import causes, in_a_line, traceback_of
from harness.engine.training.gradients import Gradients, Trained
from harness.engine.training.rank_context import RankContext
from harness.engine.training.resume import resumed
from harness.engine.training.together import Machines
from harness.engine.training.train import Loop
from harness.records.run_directory import Events

PEER_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
    "Connection was likely closed",  # of the store
)


class LocalRanks(NamedTuple):
    """The ranks of this machine."""

    first_rank: int
    local_world_size: int

    def local_rank(self, rank: int) -> int:
        """Return the index of `rank` among the ranks of this machine."""
        return rank - self.first_rank


def main(
    run_dir: Path, run: Run, clock: Clock, exchange_timeout_s: float, local: LocalRanks
) -> None:
    """Run the rank that torchrun's environment names. After a failure the process exits with 1.

    The events file is opened first, so that a rank without free descriptors can still report.
    """
    rank = int(os.environ["RANK"])
    setproctitle(f"harness: worker rank {rank}")
    if run.emulation.prefers_ranks:
        os.setsid()  # a session of its own gets its own share of the CPU
    log_to(run_dir / "logs" / f"rank{rank}.log")
    events = Events(run_dir)
    try:
        device = _device(run, rank, local)
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // local.local_world_size))
        torch.manual_seed(run.seed)
        timeout = timedelta(seconds=exchange_timeout_s)
        backend = backend_for(device.type, run.backend)
        dist.init_process_group(backend.name, timeout=timeout)
        loop, groups = build_rank(run, run_dir, clock, device, local, timeout)
        events.append("rank_ready", rank=rank, pid=os.getpid())
        loop.run()
        finished(events, clock, rank, loop, _drifted(loop.gradients, groups[0]))
        leave(loop, groups)
    except BaseException as error:
        try:
            report(events, run, rank, error)
        finally:  # also on a full disk
            os._exit(1)  # a normal exit would keep the sockets open and the peers waiting


def finished(events: Events, clock: Clock, rank: int, done: Any, drifted: bool = False) -> None:
    """Append the rank's final event: its steps, overruns, and whether the weights `drifted`."""
    told = {"steps": done.done, "aside_bytes": done.aside_bytes}
    told |= {"overruns": done.overruns, "drifted": drifted}
    events.append("rank_finished", clock.time_s(), rank=rank, **told)


def build_rank(
    run: Run,
    run_dir: Path,
    clock: Clock,
    device: torch.device,
    local: LocalRanks,
    timeout: timedelta,
) -> tuple[Loop, list[dist.ProcessGroup]]:
    """Return this rank's loop and its process groups. The first group exchanges gradients."""
    if run.parallel.levels > 1:
        levelled = two_level_workers(run.workers_per_node, device, timeout)
        workers: Workers = levelled
        groups = levelled.groups
    else:
        mesh = meshed(run.parallel.ranks, timeout)
        groups = [mesh.get_group(ACROSS), mesh.get_group(ALONG)]
        workers = Workers(groups[0], device)
    rank = dist.get_rank()
    together = Machines(clock, barrier_min, gather, local.local_rank(rank), local.local_world_size)
    data = run.dataset
    begin = resumed(run.resume_from)
    context = RankContext(
        run_dir, rank, together.local_rank == 0, clock, workers, device, together, data, begin
    )
    if run.parallel.ranks > 1:
        groups.append(everyone(timeout))
        context = context._replace(
            pipeline_group=PacketPipelineGroup(groups[1], device), everyone=Workers(groups[-1])
        )
        return build_loop(run, context), groups
    if run.parallel.needs_everyone:
        groups.append(everyone(timeout))
        context = context._replace(
            channel=lambda peer: to_rank(groups[-1], peer, device), everyone=Workers(groups[-1])
        )
    loop = build_loop(run, context)
    loop.told = CollectivesTable(run_dir, rank, workers, clock).write
    loop.waits = ProcessorWaits()
    if run.parallel.is_charged:  # other ranks may send while they compute
        workers.processor_waits = loop.waits
    return loop, groups


def two_level_workers(
    workers_per_node: int, device: torch.device, timeout: timedelta
) -> TwoLevelWorkers:
    """Return all ranks in two levels, two groups of one mesh of nodes. All ranks must call it."""
    mesh = meshed(workers_per_node, timeout, backend=None)
    levels = {"inside": mesh.get_group(ALONG), "between": mesh.get_group(ACROSS)}
    return TwoLevelWorkers(everyone(timeout, backend=None), device, **levels)


def to_rank(group: dist.ProcessGroup, peer: int, device: torch.device) -> GroupChannel:
    """Return a channel to rank `peer` of a group of all ranks."""
    return GroupChannel(group, peer, f"rank {peer}", device)


def leave(loop: Loop, groups: list[dist.ProcessGroup]) -> None:
    """End threads, then meet all peers, then free objects, then groups. Other orders can abort."""
    loop.close()
    dist.barrier()
    vars(loop).clear()
    gc.collect()
    for group in groups:
        dist.destroy_process_group(group)
    dist.destroy_process_group()


def barrier_min(mine: float) -> float:
    """Wait for all ranks. Return the smallest of their values."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    smallest = torch.tensor(mine, dtype=torch.float64, device=device)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    return smallest.item()


def gather(mine: Any) -> list[Any]:
    """Return every rank's object, ordered by rank."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def _device(run: Run, rank: int, local: LocalRanks) -> torch.device:
    """Return the CPU, or this rank's GPU. Ranks share a GPU if there are more ranks than GPUs."""
    if run.device_type(local.local_world_size) == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", local.local_rank(rank) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _drifted(gradients: Gradients, group: dist.ProcessGroup) -> bool:
    """Return True if weights differ between the group's ranks: reductions must prevent it."""
    if not isinstance(gradients, Trained):
        return False
    total = checksum(gradients)
    extremes = torch.tensor([total, -total], device=gradients.task.device)
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=group)
    return bool(extremes.sum() != 0)


def checksum(gradients: Gradients) -> int:
    """Return a checksum of the weights' bits that all ranks share, or 0 if nothing is trained."""
    if not isinstance(gradients, Trained):
        return 0
    return sum(
        int(parameter.detach().cpu().view(torch.int32).sum(dtype=torch.int64))
        for parameter in gradients.common()
    )


def log_to(path: Path) -> None:
    """Redirect this process's stdout and stderr to the file `path`, as file descriptors."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)


def report(events: Events, run: Run, rank: int, error: BaseException) -> None:
    """Write the traceback to this rank's log, then append the cause to `events` for the runner."""
    chain = causes(error)
    peer = any(mark in str(cause) for cause in chain for mark in PEER_LOST)
    peer |= isinstance(error, KeyboardInterrupt)  # sent to a worker whose agent has died
    traceback.print_exception(error)
    sys.stderr.flush()
    events.append(
        "rank_failed",
        rank=rank,
        error=in_a_line(error, run),
        peer=peer,  # True if another rank's end caused it
        waits_for=next((c.rank for c in chain if isinstance(c, PeerLost)), None),
        traceback=traceback_of(error),
        monotonic=time.monotonic(),
    )
