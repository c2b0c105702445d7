"""One rank's training as a stage of a pipeline; and cuts in a model of one process."""

from typing import Any, Protocol

import torch

from compressors.activations.encoding import Encoding
from harness.config.parallel import Pipeline
from harness.config.run import Run
from harness.engine.exchange.thread import Exchange
from harness.engine.pipeline.chain import Part
from harness.engine.pipeline.channel import Channel
from harness.engine.pipeline.device import Costs, Device
from harness.engine.pipeline.flow import Flow, Here
from harness.engine.pipeline.link import Inlet, Outlet
from harness.engine.pipeline.meeting import Meeting
from harness.engine.pipeline.meter import Meter
from harness.engine.pipeline.replayed import ReplayedStage
from harness.engine.pipeline.staged import Staged
from harness.engine.pipeline.stages import cuts_of, parts, shapes, share
from harness.engine.training.assembly import built, exchange_of, loop_of, trained
from harness.engine.training.course import course_of
from harness.engine.training.gradients import Replayed
from harness.engine.training.place import Place, anew
from harness.engine.training.replica import Gathered
from harness.engine.training.train import Loop
from harness.workloads.models.base import backward_shares


class PipelineGroup(Protocol):
    """The stages of a pipeline, from one of them."""

    stage: int
    stages: int

    def channel(self, stage: int, name: str) -> Channel:
        """Channel to another stage, which errors call `name`."""
        ...


def staged(run: Run, place: Place) -> Loop:
    """The loop of a rank that holds one stage, ready for its first step.

    `place.workers` are those of its stage in all pipelines, `place.along` the stages of its own.
    """
    layout, meeting, along = run.parallel, Meeting(place.everyone), place.along
    assert isinstance(layout, Pipeline)
    data = place.data
    whole = built(run, place._replace(device=torch.device("cpu")))
    here = Here(along.stage, along.stages, place.workers.rank)
    cuts = cuts_of(whole, data.shape, here.stages, layout.cuts)
    crossing = shapes(whole, cuts, data.shape)
    model, shares = parts(whole, cuts)[here.stage], backward_shares(whole, data.shape)
    flow = _flow(run, layout, place, along, here, crossing, share(model, shares))
    exchange = exchange_of(run, place, model, shares)
    meter = Meter([*flow.ends(), flow.device, meeting])
    if run.emulation.compute == "replay":
        replayed = _replayed(run, model, flow, exchange)
        return loop_of(run, place, replayed, flow.device, meter)
    samples, pipelines = flow.parts * flow.batch_size, place.workers.size
    course = course_of(run, data, samples, here.pipeline, pipelines, place.begin)
    alone = place._replace(replica=Gathered, once=anew)
    own, more = model.to(place.device), {"flow": flow, "meeting": meeting}
    gradients = trained(run, alone, own, course, exchange, Staged, **more)
    learnt = {type(end).__name__.lower(): end.scheme for end in flow.ends()}
    return loop_of(run, place, gradients, flow.device, meter, course, learnt)


def _flow(
    run: Run,
    layout: Pipeline,
    place: Place,
    along: PipelineGroup,
    here: Here,
    shapes: list[torch.Size],
    share: float,
) -> Flow:
    """Build the schedule engine of stage `here`, which has `share` of the computation."""
    encoding = Encoding(layout.encoding)

    def end(kind: type, cut: int, peer: int) -> Any:
        rank = here.pipeline * here.stages + peer
        channel = along.channel(peer, f"rank {rank}, stage {peer} of pipeline {here.pipeline}")
        scheme = run.activations()
        return kind(channel, scheme, encoding, shapes[cut], place.clock, place.beside)

    return Flow(
        here=here,
        inlet=None if here.is_first else end(Inlet, here.stage - 1, here.stage - 1),
        outlet=None if here.is_last else end(Outlet, here.stage, here.stage + 1),
        device=Device(place.clock, _costs(run, share, place.clock.dilation)),
        schedule=layout.schedule,
        parts=run.accumulate,
        batch_size=run.batch_size,
    )


def _costs(run: Run, share: float, dilation: float) -> Costs | None:
    """Costs of a micro-batch in a stage with `share` of the model; None: measured here."""
    if run.emulation.is_measured:
        return None
    assert run.times is not None  # harness.validation
    times = run.times.at(run.batch_size)
    real = dilation * share
    return Costs(real * times.forward_s, real * times.backward_s)


def _replayed(run: Run, model: Part, flow: Flow, exchange: Exchange) -> ReplayedStage:
    sizes = {name: parameter.shape for name, parameter in model.named_parameters()}
    seed, bucket_mb = run.seed, run.bucket_mb
    return ReplayedStage(flow, Replayed(sizes, exchange, 0, bucket_mb, seed), seed)
