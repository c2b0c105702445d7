"""All workers' training, put together from the settings of a run."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from controllers.base import Observation
from harness.data.base import DataSet
from harness.data.loader import Batches, shard
from harness.fit import device_type
from harness.models.base import backward_shares
from harness.pipeline.meter import Meter
from harness.pipeline.operators import cut_in_place, schemes
from harness.records import Events, Table
from harness.settings import Settings
from harness.simulate.compression import file_of
from harness.simulate.costs import Costs
from harness.simulate.repeats import Repeats
from harness.simulate.replica import Own, Replica
from harness.simulate.sampler import Sampler
from harness.simulate.saving import Saver, state_of
from harness.simulate.side import Side
from harness.simulate.sizes import Sizes
from harness.simulate.timeline import Timeline
from harness.simulate.train import Gradients, Loop
from harness.simulate.turns import Turns
from harness.simulate.workers import Alike, SimulatedWorkers
from harness.training import checkpoint
from harness.training.assembly import load_weights, optimizer_of, pace_of, reduction_of, with_state
from harness.training.pace import Paced
from harness.training.restoration import restored
from harness.training.resume import Resumed
from harness.training.stops import Stops
from harness.training.task import Memory, Task
from harness.training.watch import look_at


def assembled(
    run_dir: Path,
    settings: Settings,
    costs: Costs,
    begin: Resumed | None,
    tell: Callable[[], None],
) -> tuple[Loop, Turns]:
    """The loop of a run, ready for its first step, and the threads that its workers take turns in.

    The global random numbers must be those of a rank that begins.
    """
    events = Events(run_dir)
    architecture, data = settings.build("model"), settings.build("dataset")
    replay = settings["emulation.compute"] == "replay"
    device = torch.device("cpu" if replay else device_type(settings, 1))
    with torch.device("meta" if replay else "cpu"):
        model = architecture.build(data.shape, data.classes)
    gradients: Gradients
    if replay:
        gradients, steps = _sizes(settings, model, data), settings.total_steps(1)
    else:
        gradients, steps = _replica(settings, model.to(device), data, device, begin)
    first, cuts = begin.manifest.step if begin else 0, []
    if not replay:
        look_at(settings, model, data.shape, run_dir, rank=0, first=first)
        cuts = cut_in_place(settings, model, data.shape)
    pace = pace_of(settings, architecture)
    begins_s = begin.manifest.time_s if begin else 0.0
    loop = Loop(
        workers=settings["workers"],
        first=first,
        stops=Stops.of(settings, steps, data.metric),
        run_dir=run_dir,
        gradients=gradients,
        sides=[],
        pace=pace if isinstance(pace, Paced) else None,
        dilation=settings["emulation.dilation"],
        sampler=Sampler(
            costs, Table(run_dir, "links.csv"), events, settings["network.sample_s"], begins_s
        ),
        timeline=Timeline(run_dir, settings["network.timeline_steps"]),
        saver=None if replay else Saver(run_dir, settings, device.type, events, schemes(cuts)),
        tell=tell,
        crossing=Meter(cuts).read,
    )
    turns = Turns(1 if settings["network.alike"] else loop.workers, loop.exchange)
    for rank in range(turns.size):
        side = _side(settings, costs, turns, device, rank)
        side.end_s = begins_s
        loop.sides.append(side)
        if isinstance(gradients, Replica):
            learnt = with_state(side.reduction) | schemes(cuts)
            state_of(learnt)  # what cannot be kept is told now, not when it is too late
            if begin is not None:
                _go_on(begin, rank, gradients, side, learnt)
    return loop, turns


def _go_on(begin: Resumed, rank: int, replica: Replica, side: Side, learnt: dict[str, Any]) -> None:
    """Put this worker where the checkpoint was taken; the model and batches are there already."""
    own = checkpoint.load(begin.folder, checkpoint.rank_file(rank), replica.device)
    replica.restore(rank, own)
    for name, thing in learnt.items():
        restored(own["reduction"][name], thing, name)
    seen = Observation(**own["seen"])
    side.observe(seen)
    side.end_s = seen.time_s


def _side(settings: Settings, costs: Costs, turns: Turns, device: torch.device, rank: int) -> Side:
    network = settings.build("network")
    of_run = settings["workers"], settings["emulation.dilation"]
    compression = network.compression(file_of(settings["compressor"]), *of_run)
    workers = (Alike if network.alike else SimulatedWorkers)(
        rank=rank,
        size=settings["workers"],
        turns=turns,
        costs=costs,
        device=device,
        seconds_per_second=0.0 if compression else network.seconds_per_second(*of_run),
    )
    reduction = reduction_of(settings, workers)
    norms = getattr(reduction.controller, "needs_norms", False)  # of gradients, every time
    return Side(
        reduction,
        workers,
        compression,
        after_backward=settings["overlap"] == "after_backward",
        repeats=Repeats(network.repeat if network.alike and not norms else 0),
    )


def _replica(
    settings: Settings,
    model: nn.Module,
    data: DataSet,
    device: torch.device,
    begin: Resumed | None,
) -> tuple[Replica, int]:
    accumulate, batch_size = settings["accumulate"], settings["batch_size"]
    first = begin.manifest.step if begin else 0
    if begin is None:
        load_weights(settings, model, device)
    workers = _workers(settings, model, data, device, first)
    steps = settings.total_steps(len(data.train()) // (accumulate * batch_size * len(workers)))
    if steps <= first:
        raise ValueError(f"resume_from has done {first} steps, and epochs make only {steps}")
    options, schedule = settings["optimizer"], settings.build("optimizer.schedule")
    replica = Replica(
        model=model,
        workers=workers,
        optimizer=optimizer_of(options, model),
        learning_rate=lambda step: options["lr"] * schedule.factor(step, steps),
        shares=backward_shares(model, data.shape),
        samples=accumulate * batch_size,
        device=device,
        bucket_mb=settings.bucket_mb(),
        task=Task.of(data, device, settings["precision"]),
        accumulate=accumulate,
        clip_norm=options["clip_norm"],
    )
    replica.settle(torch.zeros(batch_size, *data.shape, device=device))
    if begin is not None:
        shared = checkpoint.load(begin.folder, checkpoint.MODEL, device)
        model.load_state_dict(shared["model"])
        replica.optimizer.load_state_dict(shared["optimizer"])
    return replica, steps


def _workers(
    settings: Settings, model: nn.Module, data: DataSet, device: torch.device, first: int
) -> list[Own]:
    size, seed = settings["workers"], settings["seed"]
    batch_size = settings["accumulate"] * settings["batch_size"]
    train, test = data.train(), data.test()
    found = []
    for rank in range(size):
        torch.manual_seed(seed * size + rank)  # dropout differs between ranks, not between runs
        batches = Batches(train, batch_size, rank, size, seed, first)
        found.append(
            Own(
                batches=iter(batches),
                test_set=shard(test, rank, size),
                random=torch.get_rng_state(),
                random_cuda=torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
                buffers=[copy.deepcopy(buffer) for buffer in model.buffers()],
                memory=Memory(batches.steps_per_epoch, first),
            )
        )
    return found


def _sizes(settings: Settings, model: nn.Module, data: DataSet) -> Sizes:
    parameters: dict[str, Any] = dict(model.named_parameters())
    return Sizes(
        parameters=parameters,
        shares=backward_shares(model, data.shape),
        workers=1 if settings["network.alike"] else settings["workers"],
        samples=settings["accumulate"] * settings["batch_size"],
        bucket_mb=settings.bucket_mb(),
        seed=settings["seed"],
    )
