"""One rank's training as a stage of a pipeline, and cuts in a model of one process."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from harness.config.parallel import Pipeline
from harness.config.run import Run
from harness.engine.pipeline.channel import Channel
from harness.engine.pipeline.device import Device
from harness.engine.pipeline.engine import PipelineEngine, StagePosition
from harness.engine.pipeline.gradient_norm import GradientNorm
from harness.engine.pipeline.object_gather import ObjectGather
from harness.engine.pipeline.pipeline_stage import PipelineStage, ReplayedStage, StageReplica
from harness.engine.pipeline.stage_io import Inlet, Outlet
from harness.engine.pipeline.stages import cuts_of, parts, shapes, share
from harness.engine.pipeline.traffic_meter import TrafficMeter
from harness.engine.training.build import (
    build_gradients,
    build_model,
    exchange_of,
    loop_of,
    times_of,
    watch_with,
)
from harness.engine.training.course import course_of
from harness.engine.training.rank_context import RankContext, anew
from harness.engine.training.saving import with_state
from harness.engine.training.train import Loop
from harness.workloads.models.base import backward_shares


class PipelineGroup(Protocol):
    """The stages of a pipeline, as seen from one of them."""

    stage: int
    stages: int

    def channel(self, stage: int, name: str) -> Channel:
        """Return the channel to another stage, which errors call `name`."""
        ...


def stage_loop(run: Run, layout: Pipeline, context: RankContext) -> Loop:
    """Build the loop of a rank that holds one stage, ready for its first step.

    `context.workers` hold the same stage in all pipelines, `pipeline_group` the other stages.
    """
    group = context.pipeline_group
    object_gather = ObjectGather(context.everyone)
    data = context.data
    whole = build_model(run, context._replace(device=torch.device("cpu")))
    position = StagePosition(group.stage, group.stages, context.workers.rank)
    cuts = cuts_of(whole, data.shape, position.stages, layout.cuts)
    crossing = shapes(whole, cuts, data.shape)
    stages, shares = parts(whole, cuts), backward_shares(whole, data.shape)
    model = stages[position.stage]
    engine = _engine(run, layout, context, group, position, crossing, share(model, shares))
    if run.optimizer.clip_norm is not None:
        engine.norm = _norm(context, group, position, stages)
    exchange = exchange_of(run, context, model, shares={})
    norms = [engine.norm] if engine.norm else []
    meter = TrafficMeter([*engine.ends(), engine.device, object_gather, *norms])
    course = course_of(run, context, position.pipeline, context.workers.world_size)
    if not position.is_last:  # which counts the samples
        course = course._replace(samples=0)
    if run.emulation.is_replay:
        given = dict(model.named_parameters()), course, exchange, run.bucket_mb, run.seed
        return loop_of(run, context, ReplayedStage(*given, engine=engine), engine.device, meter)
    replica = partial(StageReplica, position=position, object_gather=object_gather)
    alone = context._replace(replica=replica, once=anew)
    gradients = build_gradients(
        run, alone, model.to(context.device), course, exchange, PipelineStage, engine=engine
    )
    if run.watch:
        cut = {} if position.is_last else {position.stage: model.last_layer}
        watch_with(run, context, gradients).of(cut)
    ends = {type(end).__name__.lower(): end.scheme for end in engine.ends()}
    return loop_of(run, context, gradients, engine.device, meter, with_state(exchange) | ends)


def _engine(
    run: Run,
    layout: Pipeline,
    context: RankContext,
    group: PipelineGroup,
    position: StagePosition,
    shapes: list[torch.Size],
    share: float,
) -> PipelineEngine:
    """Build the engine of the stage at `position`, which has `share` of the computation."""

    def end(kind: type, cut: int, peer: int) -> Any:
        channel = _channel(group, position, peer)
        scheme = run.activations()
        return kind(channel, scheme, shapes[cut], context.clock, context.executor)

    return PipelineEngine(
        position=position,
        inlet=None if position.is_first else end(Inlet, position.stage - 1, position.stage - 1),
        outlet=None if position.is_last else end(Outlet, position.stage, position.stage + 1),
        device=Device(context.clock, times_of(run, context.clock.dilation, share)),
        schedule=layout.schedule,
        parts=run.accumulate,
        batch_size=run.batch_size,
    )


def _norm(
    context: RankContext, group: PipelineGroup, position: StagePosition, stages: Sequence[nn.Module]
) -> GradientNorm:
    """Build the stage's part in the norm of the gradient of all `stages`."""
    here = position.stage
    return GradientNorm(
        before=None if position.is_first else _channel(group, position, here - 1),
        after=None if position.is_last else _channel(group, position, here + 1),
        parameters_before=sum(len(list(each.parameters())) for each in stages[:here]),
        clock=context.clock,
    )


def _channel(group: PipelineGroup, position: StagePosition, peer: int) -> Channel:
    """Connect to stage `peer` of the same pipeline."""
    rank = position.pipeline * position.stages + peer
    return group.channel(peer, f"rank {rank}, stage {peer} of pipeline {position.pipeline}")
