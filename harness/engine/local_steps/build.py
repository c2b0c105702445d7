"""One rank's training by local steps, built from the settings of its run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from controllers.base import Observation
from harness.config.local_steps import LocalSteps
from harness.config.run import Run
from harness.engine.local_steps.exchange import OuterExchange
from harness.engine.local_steps.fragments import Fragment, fragments_of
from harness.engine.local_steps.gossip import Gossip
from harness.engine.local_steps.gradients import LocalReplayed, LocalTrained, own_replica
from harness.engine.local_steps.outer import OuterModel
from harness.engine.local_steps.reduction import OuterReduction
from harness.engine.local_steps.rounds import Rounds
from harness.engine.pipeline.object_gather import ObjectGather
from harness.engine.pipeline.traffic_meter import TrafficMeter
from harness.engine.training.buckets import Buckets
from harness.engine.training.build import (
    build_gradients,
    build_model,
    exchange_of,
    loop_of,
    pace_of,
    reduction_of,
)
from harness.engine.training.course import course_of
from harness.engine.training.rank_context import RankContext, anew
from harness.engine.training.saving import with_state
from harness.engine.training.train import Loop

WHOLE_MB = 1024.0  # of statistics: all of a fragment are one bucket


def local_loop(run: Run, layout: LocalSteps, context: RankContext) -> Loop:
    """Build the loop of a rank that trains weights of its own, ready for its first step."""
    gather, sources = context.together.gather, []
    if context.everyone is not None:  # over packets: whole weights are gathered, and counted
        counted = ObjectGather(context.everyone)
        gather, sources = counted.gather, [counted]
    alone = context._replace(replica=own_replica(gather), once=anew)
    model = build_model(run, alone)
    fragments = fragments_of(model, layout.fragments, layout.pattern)
    exchange = _exchange(run, layout, context, model, fragments)
    pace = pace_of(run, context.clock.dilation)
    course = course_of(run, context, context.rank, run.workers)
    exchange.at(course.first)
    if run.emulation.is_replay:
        values = not getattr(exchange.exchange, "by_shape", False)
        replayed = LocalReplayed(course, exchange, run.seed, values)
        loop = loop_of(run, context, replayed, pace, TrafficMeter([]))
    else:
        gradients = build_gradients(
            run,
            alone,
            model,
            course,
            exchange,
            LocalTrained,
            outer=OuterModel(fragments, layout, run.workers == 1),
            blend=layout.blend,
        )
        stateful = with_state(exchange.exchange)
        loop = loop_of(run, context, gradients, pace, TrafficMeter(sources), stateful)
    return in_rounds(loop, exchange)


def in_rounds(loop: Loop, exchange: OuterExchange) -> Loop:
    """Make `loop` record its rounds, and wait for pending exchanges before it pauses."""
    rest: Any = loop.rest

    def settled(done: int, seen: Observation) -> bool | None:
        if rest.is_due(done):
            exchange.settle()
        return rest(done, seen)  # type: ignore[no-any-return]

    loop.rest, loop.pull, loop.round = settled, exchange.pull, exchange.round
    return loop


def as_exchanged(run: Run, layout: LocalSteps) -> Run:
    """Return `run` changed to how its exchange works: buckets are ready after a whole step.

    If exchanges lag, compression runs beside the steps that hide it.
    """
    if layout.lag:
        run = replace(run, emulation=replace(run.emulation, compression="own"))
    return replace(run, overlap="after_backward")


def _exchange(
    run: Run,
    layout: LocalSteps,
    context: RankContext,
    model: nn.Module,
    fragments: Sequence[Fragment],
) -> OuterExchange:
    """Build the exchange of the fragments, which are all ready once a step is computed."""
    values = not run.emulation.is_replay
    laid = [_laid(run, each) for each in fragments]
    statistics = frozenset(name for each in fragments for name in each.statistics)
    run = as_exchanged(run, layout)
    if layout.is_gossip:
        reduction: Any = reduction_of(run, context.workers, kind=OuterReduction)
        given = reduction, context.workers, context.clock, context.channel, run.seed
        return OuterExchange(Gossip(*given), context.clock, Rounds(layout), laid)
    exchange = exchange_of(run, context, model, {}, OuterReduction)
    exchange.reduction.statistics = statistics
    if not values and getattr(exchange, "by_shape", False):
        laid = [_laid(run, each, values=False) for each in fragments]
    return OuterExchange(exchange, context.clock, Rounds(layout), laid)


def _laid(run: Run, fragment: Fragment, values: bool = True) -> list[Buckets]:
    """Lay out the buckets of a fragment. Its statistics have buckets of their own."""
    parts = [(fragment.parameters, run.bucket_mb), (fragment.statistics, WHOLE_MB)]
    return [Buckets(tensors, mb, values) for tensors, mb in parts if tensors]
