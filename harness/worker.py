"""What each rank executes: builds the run from its directory, trains, writes, leaves in order."""

import copy
import gc
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from harness.clock import Clock
from harness.data.base import DataSet
from harness.data.loader import Batches, shard
from harness.exchange import Exchange
from harness.feedback import Forget, Residual
from harness.gradients import Replayed, Trained
from harness.models.base import Architecture, backward_shares
from harness.pace import Measured, Pace, Paced
from harness.records import Events
from harness.reduction import Reduction
from harness.settings import Settings
from harness.train import Gradients, Loop
from harness.workers import Workers

PEER_LOST = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting")


class Here(NamedTuple):
    """The ranks of this machine."""

    first_rank: int
    workers: int


def main(run_dir: str, clock: Clock, exchange_timeout_s: float, here: Here) -> None:
    """Run this rank, as torchrun's environment names it; never returns normally after a failure."""
    rank = int(os.environ["RANK"])
    folder = Path(run_dir)
    log_to(folder / "logs" / f"rank{rank}.log")
    try:
        _run(folder, rank, clock, exchange_timeout_s, here)
    except BaseException as error:
        try:
            _report(folder, rank, error)
        finally:  # also on a full disk
            os._exit(1)  # finalization would keep the sockets open and the peers waiting


def _run(run_dir: Path, rank: int, clock: Clock, exchange_timeout_s: float, here: Here) -> None:
    settings = Settings.read(run_dir)
    events = Events(run_dir)
    device = _device(settings, rank, here)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // here.workers))
    torch.manual_seed(settings["seed"])
    timeout = timedelta(seconds=exchange_timeout_s)
    dist.init_process_group(_backend(device), timeout=timeout)
    group = dist.new_group(timeout=timeout)  # does not inherit the timeout
    assert isinstance(group, dist.ProcessGroup)  # all ranks belong to it
    loop = _loop(run_dir, settings, rank, clock, group, device)
    loop.keeps_clock = rank == here.first_rank
    events.append("rank_ready", rank=rank)
    overruns = loop.run()
    drifted = _drifted(loop.gradients)
    events.append(
        "rank_finished",
        clock.time_s(),
        rank=rank,
        overruns=overruns,
        drifted=drifted,
        steps=loop.steps,
    )
    leave(loop, group)


def leave(loop: Loop, group: dist.ProcessGroup) -> None:
    """Thread first, then peers, then objects, then groups: any other order was seen to abort."""
    loop.exchange.close()
    dist.barrier()
    vars(loop).clear()
    gc.collect()
    dist.destroy_process_group(group)
    dist.destroy_process_group()


def _loop(
    run_dir: Path,
    settings: Settings,
    rank: int,
    clock: Clock,
    group: dist.ProcessGroup,
    device: torch.device,
) -> Loop:
    architecture, data = settings.build("model"), settings.build("dataset")
    replay = settings["emulation.compute"] == "replay"
    with torch.device("meta" if replay else "cpu"):
        model = architecture.build(data.shape, data.classes)
    model = model if replay else model.to(device)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    workers = Workers(group, device)
    exchange = Exchange(
        reduction=_reduction(settings, workers),
        workers=workers,
        clock=clock,
        names=names,
        shares=backward_shares(model, data.shape),
    )
    gradients: Gradients
    if replay:
        gradients, steps = _replayed(settings, model, exchange), settings.total_steps(1)
    else:
        gradients, steps = _trained(settings, rank, model, data, exchange, device)
    return Loop(
        rank=rank,
        steps=steps,
        eval_every=settings["eval_every"],
        checkpoint_every=settings["checkpoint_every"],
        run_dir=run_dir,
        gradients=gradients,
        exchange=exchange,
        pace=_pace(settings, architecture),
        clock=clock,
        barrier=_barrier,
    )


def _reduction(settings: Settings, workers: Workers) -> Reduction:
    decay = settings["residual_decay"]
    return Reduction(
        compressor=settings.build("compressor"),
        controller=settings.build("controller"),
        agree=settings["controller.agree"],
        feedback=Residual(decay) if settings["error_feedback"] else Forget(),
        workers=workers,
    )


def _trained(
    settings: Settings,
    rank: int,
    model: torch.nn.Module,
    data: DataSet,
    exchange: Exchange,
    device: torch.device,
) -> tuple[Trained, int]:
    size, batch_size, seed = settings["workers"], settings["batch_size"], settings["seed"]
    batches = Batches(data.train(), batch_size, rank, size, seed)
    steps = settings.total_steps(batches.steps_per_epoch)
    test_set = shard(data.test(), rank, size)
    options, schedule = settings["optimizer"], settings.build("optimizer.schedule")
    _load_weights(settings, model, device)
    _warm_up(model, torch.zeros(batch_size, *data.shape, device=device))
    torch.manual_seed(seed * size + rank)  # dropout differs between ranks, not between runs
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=options["lr"],
        momentum=options["momentum"],
        weight_decay=options["weight_decay"],
        nesterov=options["nesterov"],
    )
    gradients = Trained(
        model=model,
        batches=iter(batches),
        test_set=lambda: iter(test_set),
        optimizer=optimizer,
        learning_rate=lambda step: options["lr"] * schedule.factor(step, steps),
        exchange=exchange,
        samples=batch_size,
        device=device,
        bucket_mb=settings["bucket_mb"],
        metric=data.metric,
    )
    return gradients, steps


def _replayed(settings: Settings, model: torch.nn.Module, exchange: Exchange) -> Replayed:
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return Replayed(
        sizes, exchange, settings["batch_size"], settings["bucket_mb"], settings["seed"]
    )


def _load_weights(settings: Settings, model: torch.nn.Module, device: torch.device) -> None:
    if settings["initial_weights"]:
        saved = torch.load(settings["initial_weights"], weights_only=True, map_location=device)
        model.load_state_dict(saved["model"])


def _warm_up(model: torch.nn.Module, inputs: torch.Tensor) -> None:
    """Take one-time costs of the first forward and backward before the clock starts."""
    copy.deepcopy(model)(inputs).sum().backward()


def _pace(settings: Settings, architecture: Architecture) -> Pace:
    if settings["emulation.compute"] == "measured":
        return Measured()
    assert architecture.times is not None  # Settings.check
    times, dilation = architecture.times.at(settings["batch_size"]), settings["emulation.dilation"]
    return Paced(times.forward_s * dilation, times.backward_s * dilation)


def _barrier() -> None:
    dist.barrier()


def _device(settings: Settings, rank: int, here: Here) -> torch.device:
    """A GPU of its own for every rank of this machine, or the CPU; NCCL cannot share one."""
    wanted, gpus = settings["device"], torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and gpus < here.workers):
        return torch.device("cpu")
    device = torch.device("cuda", rank - here.first_rank)
    torch.cuda.set_device(device)
    return device


def _backend(device: torch.device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"


def _drifted(gradients: Gradients) -> bool:
    """Whether the ranks' weights differ; every reduction promises that they do not."""
    if not isinstance(gradients, Trained):
        return False
    total = sum(
        int(parameter.detach().cpu().view(torch.int32).sum(dtype=torch.int64))
        for parameter in gradients.model.parameters()
    )
    extremes = torch.tensor([total, -total], device=gradients.device)
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    return bool(extremes.sum() != 0)


def log_to(path: Path) -> None:
    """Send this process's output to `path`, at the level of file descriptors."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    os.close(log)


def _report(run_dir: Path, rank: int, error: BaseException) -> None:
    """Leave the cause where the runner finds it, and the traceback in this rank's log."""
    text = "".join(traceback.format_exception(error))
    chain = _causes(error)
    peer = any(mark in str(cause) for cause in chain for mark in PEER_LOST)
    peer |= isinstance(error, KeyboardInterrupt)  # sent to a worker whose agent has died
    Events(run_dir).append(
        "rank_failed",
        rank=rank,
        error=f"{type(chain[-1]).__name__}: {chain[-1]}",
        peer=peer,  # a consequence of another rank's end
        traceback=text,
        monotonic=time.monotonic(),
    )
    print(text, file=sys.stderr, flush=True)


def _causes(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    return chain
