"""Construction of one rank's training loop from its run, or from a checkpoint of the run."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from compressors.activations.operator import Cut
from harness.clock import RankClock
from harness.config.device_costs import file_of
from harness.config.keys import Optimizer
from harness.config.parallel import Parallel
from harness.config.run import Run
from harness.engine.exchange.bucket_lanes import Charge, Exchange
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.levels import TwoLevelReduction
from harness.engine.exchange.reduction import AgreeingWorkers, BucketBuffers, Reduction
from harness.engine.pipeline.device import StageTimes
from harness.engine.pipeline.operators import before_cuts, cut_in_place, schemes
from harness.engine.pipeline.traffic_meter import TrafficMeter
from harness.engine.training.course import Course, course_of
from harness.engine.training.gradients import Replayed, Trained
from harness.engine.training.pace import MeasuredPace, Pace, Paced
from harness.engine.training.rank_context import RankContext, anew
from harness.engine.training.rest import Rest, StopSchedule
from harness.engine.training.saving import go_on, saver_of, with_state
from harness.engine.training.task import Task
from harness.engine.training.train import Loop
from harness.engine.training.watch import Watching
from harness.records import checkpoint
from harness.workloads.models.base import backward_shares
from harness.workloads.models.stand_in import represented


def whole_model_loop(run: Run, layout: Parallel, context: RankContext) -> Loop:
    """Return the training loop of a rank that has the whole model, with or without cuts."""
    model = context.once("model", lambda: build_model(run, context))
    shares = context.once("shares", lambda: backward_shares(model, context.data.shape))
    kind = TwoLevelReduction if layout.levels > 1 else Reduction
    exchange = exchange_of(run, context, model, shares, kind)
    pace = pace_of(run, context.clock.dilation)
    course = course_of(run, context, context.rank, run.workers)
    if run.emulation.is_replay:
        parameters = dict(model.named_parameters())
        replayed = Replayed(parameters, course, exchange, run.bucket_mb, run.seed)
        return loop_of(run, context, replayed, pace, TrafficMeter([]))
    gradients = build_gradients(run, context, model, course, exchange)
    cuts = _cuts(run, context, model, gradients)
    stateful = with_state(exchange) | schemes(cuts)
    return loop_of(run, context, gradients, pace, TrafficMeter(cuts), stateful)


def build_model(run: Run, context: RankContext) -> nn.Module:
    """Return the run's model, on meta for a replay; at step 0 with `initial_weights`, if given."""
    replays, path = run.emulation.is_replay, run.initial_weights
    with torch.device("meta" if replays else "cpu"):
        model = run.model.build(context.data.shape, context.data.classes)
    if replays:
        return model
    if context.begin is None and path:
        model.load_state_dict(checkpoint.weights_of(path))
    return model.to(context.device)


def loop_of(
    run: Run,
    context: RankContext,
    gradients: Any,
    pace: Pace,
    meter: TrafficMeter,
    stateful: Mapping[str, Any] = {},  # noqa: B006  read only
) -> Loop:
    """Return the training loop of a rank around `gradients`.

    Checkpoints keep the objects in `stateful`; none are written if it is empty. `meter` measures
    the traffic across the cuts.
    """
    rest = rest_of(run, context, gradients, stateful)
    return Loop(
        rank=context.rank,
        first=rest.done,
        steps=range(rest.done, rest.stops.steps),
        table=context.table("steps"),
        gradients=gradients,
        exchange=gradients.exchange,
        pace=pace,
        clock=context.clock,
        begin=context.together.begin,
        rest=rest,
        stage_traffic=meter.read,
    )


def rest_of(run: Run, context: RankContext, gradients: Any, stateful: Mapping[str, Any]) -> Rest:
    """Load the checkpoint to resume from, if any. Return the Rest to call after each step."""
    course: Course = gradients.course
    if course.begin is not None:
        go_on(course.begin, context, gradients, stateful)
    return Rest(
        stops=StopSchedule.of(run, course.steps),
        done=course.first,
        clock=context.clock,
        together=context.together,
        evaluate=gradients.evaluate,
        save=saver_of(run, context, gradients, stateful),
        table=context.table("evaluations") if context.tells else None,
    )


def exchange_of(
    run: Run,
    context: RankContext,
    model: nn.Module,
    shares: Mapping[str, float],
    kind: type[Reduction] = Reduction,
) -> Any:
    """Return the exchange of the gradients of `model`, with a reduction of class `kind`.

    `shares` gives each parameter's share of backward. If empty, all gradients are ready at its end.
    """
    reduction = reduction_of(run, context.workers, context.shared, kind)
    charge = _charge(run, model, reduction.compressor)
    if charge and isinstance(reduction, TwoLevelReduction):
        charge = reduction.charged(charge)
    return assembled(
        run,
        reduction,
        context.clock,
        model,
        make=context.exchange,
        shares=shares,
        is_emulated=run.network.in_process or not run.emulation.is_measured,
        charge=charge,
    )


def assembled(
    run: Run,
    reduction: Reduction,
    clock: RankClock,
    model: nn.Module,
    *,
    make: Callable[..., Any] = Exchange,
    is_emulated: bool = False,
    **more: Any,
) -> Any:
    """Return the exchange built by `make`, for a rank of the harness or for `gradnet.attach`.

    `is_emulated` and `more`, further arguments of `make`, describe the emulated device.
    """
    return make(
        reduction=reduction,
        workers=reduction.workers,
        clock=clock,
        names={id(parameter): name for name, parameter in model.named_parameters()},
        after_backward=run.overlap == "after_backward",
        lanes=run.emulation.lanes(reduction.compressor, is_emulated),
        **more,
    )


def _charge(run: Run, model: nn.Module, compressor: Any) -> Charge | None:
    """Return the compression time model of the emulated device, or None if measured."""
    dilation, stands_for = run.emulation.dilation, partial(represented, run.model)
    given = run.network.compression(file_of(compressor), run.workers, dilation, stands_for)
    if given is None:
        return None
    of = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)

    def charge(laid: BucketBuffers, density: float, step: int) -> float:
        pairs = zip(laid.names, laid.gradients, strict=True)
        shapes = {name: gradient.shape for name, gradient in pairs}
        return given.charge(compressor, shapes, density, step, of)

    return charge


def reduction_of(
    run: Run,
    workers: AgreeingWorkers,
    shared: Callable[..., Any] = anew,
    kind: type[Reduction] = Reduction,
) -> Reduction:
    """Return a worker's reduction. `shared` makes the parts that threads of a rank share."""
    feedback = partial(Residual, run.residual_decay) if run.error_feedback else NoFeedback
    return kind(
        compressor=shared("compressor", run.compressor),
        controller=run.controller(),
        agree=run.agree,
        feedback=shared("feedback", feedback),
        workers=workers,
    )


def build_gradients(
    run: Run,
    context: RankContext,
    model: nn.Module,
    course: Course,
    exchange: Any,
    kind: type[Trained] = Trained,
    **more: Any,
) -> Trained:
    """Return the rank's gradient source of class `kind`, given `more`, ready for its first step."""
    gradients = kind(
        model=model,
        replica=context.replica(model, exchange, run.bucket_mb),
        course=course,
        optimizer=context.once("optimizer", lambda: optimizer_of(run.optimizer, model)),
        exchange=exchange,
        clock=context.clock,
        task=Task.of(context.data, context.device, run.precision),
        accumulate=run.accumulate,
        clip_norm=run.optimizer.clip_norm,
        **more,
    )
    shape = run.batch_size, *context.data.shape
    gradients.settle(torch.zeros(*shape, device=context.device))
    torch.manual_seed(run.seed_of(context.rank))
    return gradients


def _cuts(run: Run, context: RankContext, model: nn.Module, gradients: Trained) -> list[Cut]:
    """Cut the model and attach the run's watch, if any. Return this rank's cuts."""
    shape, parallel = context.data.shape, run.parallel

    def layers() -> list[nn.Module]:
        return before_cuts(model, shape, parallel) if parallel.has_cuts else []

    there = context.once("layers", layers)  # found before any cut is in place
    if run.watch:
        watch_with(run, context, gradients).of(dict(enumerate(there)))
    cuts = context.once("cuts", lambda: cut_in_place(run, model, shape))
    own = [Cut(run.activations()) for _ in cuts]
    gradients.replica.cut(cuts, own)
    return own


def watch_with(run: Run, context: RankContext, gradients: Trained) -> Watching:
    """Return the run's watch of one rank. It sees each bucket before compression."""
    assert run.watch is not None
    where = context.run_dir, context.rank, run.accumulate, gradients.course.first
    watching = Watching(run.watch, *where, gradients.replica.is_at_work)
    gradients.exchange.reduction.look = watching.gradients
    return watching


def optimizer_of(asked: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of `model`'s parameters. The schedule sets its learning rate.

    adamw shrinks weights by rate times decay each step (Loshchilov and Hutter, 2019), as fairseq's
    Adam does. The others add the decay to the gradient.
    """
    given: Any = {"params": model.parameters(), "lr": asked.lr, "weight_decay": asked.weight_decay}
    if asked.kind != "sgd":
        kind = torch.optim.AdamW if asked.kind == "adamw" else torch.optim.Adam
        return kind(betas=(asked.momentum, asked.beta_2), **given)
    return torch.optim.SGD(momentum=asked.momentum, nesterov=asked.nesterov, **given)


def pace_of(run: Run, dilation: float) -> Pace:
    """Return the pace of steps at `dilation`; nothing is sent before the last micro-batch."""
    if (times := times_of(run, dilation)) is None:
        return MeasuredPace()
    before_s = (run.accumulate - 1) * sum(times)
    return Paced(before_s + times.forward_s, times.backward_s)


def times_of(run: Run, dilation: float, share: float = 1.0) -> StageTimes | None:
    """Return real seconds of a micro-batch on a `share` of the model, or None if measured."""
    if run.emulation.is_measured:
        return None
    assert run.times is not None  # harness.validation
    times, real = run.times.at(run.batch_size), dilation * share
    return StageTimes(real * times.forward_s, real * times.backward_s)
