"""One rank's training as a stage of a pipeline; and cuts in a model of one process."""

from typing import Any

import torch
import torch.distributed as dist

from compressors.activations.encoding import Encoding
from harness.data.base import DataSet
from harness.data.loader import Batches, shard
from harness.exchange.thread import Exchange
from harness.exchange.workers import Workers
from harness.models.base import backward_shares
from harness.pipeline.chain import Part
from harness.pipeline.channel import Channel
from harness.pipeline.device import Costs, Device
from harness.pipeline.flow import Flow, Here
from harness.pipeline.link import Inlet, Outlet
from harness.pipeline.meeting import Meeting
from harness.pipeline.meter import Meter
from harness.pipeline.replayed import ReplayedStage
from harness.pipeline.staged import Staged
from harness.pipeline.stages import cuts_of, parts, shapes, share
from harness.settings import Settings
from harness.training.assembly import (
    Gather,
    Place,
    exchange_of,
    go_on,
    load_weights,
    optimizer_of,
    saver_of,
    with_state,
)
from harness.training.gradients import Replayed
from harness.training.resume import Resumed, resumed
from harness.training.stops import Stops
from harness.training.task import Task
from harness.training.train import Loop, Meet, Save, no_checkpoint


def assembled(
    settings: Settings,
    place: Place,
    along: dist.ProcessGroup,
    everyone: Workers,
    meet: Meet,
    gather: Gather,
) -> Loop:
    """The loop of a rank, ready for its first step.

    `place.workers` are those of its stage in all pipelines, `along` are the stages of its own.
    """
    meeting = Meeting(everyone)
    data, begin = settings.build("dataset"), resumed(settings["resume_from"])
    replay = settings["emulation.compute"] == "replay"
    with torch.device("meta" if replay else "cpu"):
        whole = settings.build("model").build(data.shape, data.classes)
    if begin is None and not replay:
        load_weights(settings, whole, torch.device("cpu"))
    here = Here(along.rank(), along.size(), place.workers.rank)
    cuts = cuts_of(whole, data.shape, here.stages, settings["parallel.cuts"])
    crossing = shapes(whole, cuts, data.shape)
    model, shares = parts(whole, cuts)[here.stage], backward_shares(whole, data.shape)
    flow = _flow(settings, place, along, here, crossing, share(model, shares))
    exchange = exchange_of(settings, place, model, shares)
    gradients: Staged | ReplayedStage
    save: Save = no_checkpoint
    if replay:
        gradients, steps = _replayed(settings, model, flow, exchange), settings.total_steps(1)
    else:
        model = model.to(place.device)
        gradients, steps = _staged(settings, place, flow, model, data, exchange, meeting, begin)
        learnt = with_state(exchange.reduction)
        learnt |= {type(end).__name__.lower(): end.scheme for end in flow.ends()}
        if begin is not None:
            go_on(begin, place, gradients, exchange, learnt)
        save = saver_of(settings, place, gather, gradients, learnt)
    return Loop(
        rank=place.rank,
        first=begin.manifest.step if begin else 0,
        stops=Stops.of(settings, steps, data.metric),
        run_dir=place.run_dir,
        gradients=gradients,
        exchange=exchange,
        pace=flow.device,
        clock=place.clock,
        meet=meet,
        save=save,
        seat=place.seat,
        seats=place.seats,
        crossing=Meter([*flow.ends(), flow.device, meeting]).read,
    )


def _flow(
    settings: Settings,
    place: Place,
    along: dist.ProcessGroup,
    here: Here,
    shapes: list[torch.Size],
    share: float,
) -> Flow:
    """Of the stage `here`, which has this `share` of the computation."""
    encoding = Encoding(settings["parallel.encoding"])

    def end(kind: type, cut: int, peer: int) -> Any:
        rank = dist.get_global_rank(along, peer)
        name = f"rank {rank}, stage {peer} of pipeline {here.pipeline}"
        scheme = settings.build("activations")
        return kind(Channel(along, peer, name, place.device), scheme, encoding, shapes[cut])

    return Flow(
        here=here,
        inlet=None if here.is_first else end(Inlet, here.stage - 1, here.stage - 1),
        outlet=None if here.is_last else end(Outlet, here.stage, here.stage + 1),
        device=Device(place.clock, _costs(settings, share)),
        schedule=settings["parallel.schedule"],
        parts=settings["accumulate"],
        batch_size=settings["batch_size"],
    )


def _costs(settings: Settings, share: float) -> Costs | None:
    """Of a micro-batch, in a stage with this `share` of the model; None: as it takes here."""
    if settings["emulation.compute"] == "measured":
        return None
    times = settings.build("model").times.at(settings["batch_size"])
    real = settings["emulation.dilation"] * share
    return Costs(real * times.forward_s, real * times.backward_s)


def _replayed(settings: Settings, model: Part, flow: Flow, exchange: Exchange) -> ReplayedStage:
    sizes = {name: parameter.shape for name, parameter in model.named_parameters()}
    seed, bucket_mb = settings["seed"], settings.bucket_mb()
    return ReplayedStage(flow, Replayed(sizes, exchange, 0, bucket_mb, seed), seed)


def _staged(
    settings: Settings,
    place: Place,
    flow: Flow,
    model: Part,
    data: DataSet,
    exchange: Exchange,
    meeting: Meeting,
    begin: Resumed | None,
) -> tuple[Staged, int]:
    """Every rank of a pipeline reads what a worker with the whole model would."""
    pipelines, number, seed = place.workers.size, flow.here.pipeline, settings["seed"]
    of_a_step, first = flow.parts * flow.batch_size, begin.manifest.step if begin else 0
    batches = Batches(data.train(), of_a_step, number, pipelines, seed, first)
    steps = settings.total_steps(batches.steps_per_epoch)
    if steps <= first:
        raise ValueError(f"resume_from has done {first} steps, and epochs make only {steps}")
    options, schedule = settings["optimizer"], settings.build("optimizer.schedule")
    test_set = shard(data.test(), number, pipelines)
    staged = Staged(
        model=model,
        flow=flow,
        batches=iter(batches),
        test_set=lambda: iter(test_set),
        optimizer=optimizer_of(options, model),
        learning_rate=lambda step: options["lr"] * schedule.factor(step, steps),
        exchange=exchange,
        meeting=meeting,
        task=Task(data.metric, place.device, settings["precision"]),
        bucket_mb=settings.bucket_mb(),
    )
    staged.settle(torch.zeros(flow.batch_size, *data.shape))
    torch.manual_seed(seed * settings["workers"] + place.rank)
    return staged, steps
