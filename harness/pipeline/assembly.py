"""One rank's training as a stage of a pipeline; and cuts in a model of one process."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from compressors.activations.encoding import Encoding
from harness.assembly import (
    Barrier,
    Gather,
    Place,
    exchange_of,
    go_on,
    load_weights,
    optimizer_of,
    pace_of,
    saver_of,
    with_state,
)
from harness.data.base import DataSet
from harness.data.loader import Batches, shard
from harness.exchange import Exchange
from harness.models.base import backward_shares
from harness.pipeline.channel import Channel
from harness.pipeline.link import Inlet, Outlet
from harness.pipeline.meeting import Meeting
from harness.pipeline.meter import Meter
from harness.pipeline.staged import Here, Staged
from harness.pipeline.stages import cuts_of, parts, shapes
from harness.resume import Resumed, resumed
from harness.settings import Settings
from harness.stops import Stops
from harness.task import Task
from harness.train import Loop
from harness.workers import Workers


def assembled(
    settings: Settings,
    place: Place,
    along: dist.ProcessGroup,
    everyone: Workers,
    barrier: Barrier,
    gather: Gather,
) -> Loop:
    """The loop of a rank, ready for its first step.

    `place.workers` are those of its stage in all pipelines, `along` are the stages of its own.
    """
    meeting = Meeting(everyone)
    architecture, data = settings.build("model"), settings.build("dataset")
    begin = resumed(settings["resume_from"])
    whole = architecture.build(data.shape, data.classes)
    if begin is None:
        load_weights(settings, whole, torch.device("cpu"))
    here = Here(along.rank(), along.size(), place.workers.rank)
    stages = settings["parallel.stages"]
    cuts = cuts_of(whole, data.shape, stages, settings["parallel.cuts"])
    crossing = shapes(whole, cuts, data.shape)
    model = parts(whole, cuts)[here.stage].to(place.device)
    exchange = exchange_of(settings, place, model, backward_shares(whole, data.shape))
    inlet, outlet = _ends(settings, along, place.device, crossing)
    gradients, steps = _staged(
        settings, place, here, (model, inlet, outlet), data, exchange, meeting, begin
    )
    learnt = with_state(exchange.reduction) | {
        type(end).__name__.lower(): end.scheme for end in gradients.ends()
    }
    if begin is not None:
        go_on(begin, place, gradients, exchange, learnt)
    return Loop(
        rank=place.rank,
        first=begin.manifest.step if begin else 0,
        stops=Stops.of(settings, steps, data.metric),
        run_dir=place.run_dir,
        gradients=gradients,
        exchange=exchange,
        pace=pace_of(settings, architecture),
        clock=place.clock,
        barrier=barrier,
        save=saver_of(settings, place, gather, gradients, learnt),
        keeps_clock=place.leads,
        crossing=Meter([*gradients.ends(), meeting]).read,
    )


def _ends(
    settings: Settings, along: dist.ProcessGroup, device: torch.device, shapes: list[torch.Size]
) -> tuple[Inlet | None, Outlet | None]:
    """Of the cuts before and behind this stage."""
    stage, encoding = along.rank(), Encoding(settings["parallel.encoding"])

    def end(kind: type, cut: int, peer: int) -> Any:
        scheme = settings.build("activations")
        return kind(Channel(along, peer, device), scheme, encoding, shapes[cut])

    inlet = end(Inlet, stage - 1, stage - 1) if stage > 0 else None
    outlet = end(Outlet, stage, stage + 1) if stage + 1 < along.size() else None
    return inlet, outlet


def _staged(
    settings: Settings,
    place: Place,
    here: Here,
    parts: tuple[nn.Module, Inlet | None, Outlet | None],
    data: DataSet,
    exchange: Exchange,
    meeting: Meeting,
    begin: Resumed | None,
) -> tuple[Staged, int]:
    """Every rank of a pipeline reads what a worker with the whole model would."""
    model, inlet, outlet = parts
    pipelines, batch_size, seed = place.workers.size, settings["batch_size"], settings["seed"]
    accumulate, first = settings["accumulate"], begin.manifest.step if begin else 0
    batches = Batches(data.train(), accumulate * batch_size, here.pipeline, pipelines, seed, first)
    steps = settings.total_steps(batches.steps_per_epoch)
    if steps <= first:
        raise ValueError(f"resume_from has done {first} steps, and epochs make only {steps}")
    options, schedule = settings["optimizer"], settings.build("optimizer.schedule")
    test_set = shard(data.test(), here.pipeline, pipelines)
    staged = Staged(
        model=model,
        here=here,
        inlet=inlet,
        outlet=outlet,
        batches=iter(batches),
        test_set=lambda: iter(test_set),
        optimizer=optimizer_of(options, model),
        learning_rate=lambda step: options["lr"] * schedule.factor(step, steps),
        exchange=exchange,
        meeting=meeting,
        task=Task(data.metric, place.device, settings["precision"]),
        parts=accumulate,
        batch_size=batch_size,
        schedule=settings["parallel.schedule"],
        bucket_mb=settings.bucket_mb(),
    )
    staged.settle(torch.zeros(batch_size, *(inlet.shape if inlet else data.shape)))
    torch.manual_seed(seed * settings["workers"] + place.rank)
    return staged, steps
