"""One rank's training, put together from its settings, or from a checkpoint of the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from compressors.activations.operator import Cut
from controllers.base import Observation
from harness.clock import Clock
from harness.data.base import DataSet
from harness.data.loader import Batches, shard
from harness.exchange.feedback import Forget, Residual
from harness.exchange.reduction import AgreeingWorkers, Reduction
from harness.exchange.thread import Exchange
from harness.exchange.workers import Workers
from harness.models.base import Architecture, backward_shares
from harness.pipeline.meter import Meter
from harness.pipeline.operators import cut_in_place, schemes
from harness.pipeline.staged import Staged
from harness.records import Events
from harness.settings import Settings
from harness.training import checkpoint
from harness.training.gradients import Replayed, Trained
from harness.training.pace import Measured, Pace, Paced
from harness.training.restoration import restored
from harness.training.resume import Resumed, deciding, resumed
from harness.training.snapshot import taken
from harness.training.stops import Stops
from harness.training.task import Memory, Task
from harness.training.train import Gradients, Loop, Meet, Save, no_checkpoint
from harness.training.watch import look_at

Gather = Callable[[Any], list[Any]]  # every rank's, by rank


class Place(NamedTuple):
    """Which rank this is, and what it has."""

    run_dir: Path
    rank: int
    seat: int  # among the ranks of its machine; the first leads them
    seats: int  # of its machine
    clock: Clock
    workers: Workers
    device: torch.device


def assembled(settings: Settings, place: Place, meet: Meet, gather: Gather) -> Loop:
    """The loop of a rank, ready for its first step."""
    architecture, data = settings.build("model"), settings.build("dataset")
    replay, begin = settings["emulation.compute"] == "replay", resumed(settings["resume_from"])
    with torch.device("meta" if replay else "cpu"):
        model = architecture.build(data.shape, data.classes)
    model = model if replay else model.to(place.device)
    exchange = exchange_of(settings, place, model, backward_shares(model, data.shape))
    gradients: Gradients
    save: Save = no_checkpoint
    cuts: list[Cut] = []
    if replay:
        gradients, steps = _replayed(settings, model, exchange), settings.total_steps(1)
    else:
        gradients, steps = _trained(settings, place, model, data, exchange, begin)
        first = begin.manifest.step if begin else 0
        look_at(settings, model, data.shape, place.run_dir, place.rank, first)
        cuts = cut_in_place(settings, model, data.shape)
        learnt = with_state(exchange.reduction) | schemes(cuts)
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
        pace=pace_of(settings, architecture),
        clock=place.clock,
        meet=meet,
        save=save,
        seat=place.seat,
        seats=place.seats,
        crossing=Meter(cuts).read,
    )


def exchange_of(
    settings: Settings, place: Place, model: torch.nn.Module, shares: dict[str, float]
) -> Exchange:
    """Of the gradients of `model`; `shares` are of backward, by parameter."""
    return Exchange(
        reduction=reduction_of(settings, place.workers),
        workers=place.workers,
        clock=place.clock,
        names={id(parameter): name for name, parameter in model.named_parameters()},
        shares=shares,
        after_backward=settings["overlap"] == "after_backward",
    )


def reduction_of(settings: Settings, workers: AgreeingWorkers) -> Reduction:
    """What a worker keeps between exchanges."""
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
    place: Place,
    model: torch.nn.Module,
    data: DataSet,
    exchange: Exchange,
    begin: Resumed | None,
) -> tuple[Trained, int]:
    size, batch_size, seed = settings["workers"], settings["batch_size"], settings["seed"]
    accumulate, first = settings["accumulate"], begin.manifest.step if begin else 0
    batches = Batches(data.train(), accumulate * batch_size, place.rank, size, seed, first)
    steps = settings.total_steps(batches.steps_per_epoch)
    if steps <= first:
        raise ValueError(f"resume_from has done {first} steps, and epochs make only {steps}")
    test_set = shard(data.test(), place.rank, size)
    options, schedule = settings["optimizer"], settings.build("optimizer.schedule")
    if begin is None:
        load_weights(settings, model, place.device)
    gradients = Trained(
        model=model,
        batches=iter(batches),
        test_set=lambda: iter(test_set),
        optimizer=optimizer_of(options, model),
        learning_rate=lambda step: options["lr"] * schedule.factor(step, steps),
        exchange=exchange,
        samples=accumulate * batch_size,
        device=place.device,
        bucket_mb=settings.bucket_mb(),
        task=Task.of(data, place.device, settings["precision"]),
        accumulate=accumulate,
        memory=Memory(batches.steps_per_epoch, first),
        clip_norm=options["clip_norm"],
    )
    gradients.settle(torch.zeros(batch_size, *data.shape, device=place.device))
    torch.manual_seed(seed * size + place.rank)  # dropout differs between ranks, not between runs
    return gradients, steps


def optimizer_of(options: dict[str, Any], model: torch.nn.Module) -> torch.optim.Optimizer:
    """That of the `optimizer` section's `options`; the schedule sets its rate."""
    if options["kind"] == "adam":
        return torch.optim.Adam(
            model.parameters(),
            lr=options["lr"],
            betas=(options["momentum"], options["beta_2"]),
            weight_decay=options["weight_decay"],
        )
    return torch.optim.SGD(
        model.parameters(),
        lr=options["lr"],
        momentum=options["momentum"],
        weight_decay=options["weight_decay"],
        nesterov=options["nesterov"],
    )


def go_on(
    begin: Resumed,
    place: Place,
    gradients: Trained | Staged,
    exchange: Exchange,
    learnt: dict[str, Any],
) -> None:
    """Put this rank where the checkpoint was taken; batches and clock begin there by themselves."""
    own = checkpoint.load(begin.folder, checkpoint.rank_file(place.rank), place.device)
    gradients.restore(checkpoint.load(begin.folder, checkpoint.MODEL, place.device), own)
    for name, thing in learnt.items():
        restored(own["reduction"][name], thing, name)
    exchange.observe(Observation(**own["seen"]))


def saver_of(
    settings: Settings,
    place: Place,
    gather: Gather,
    gradients: Trained | Staged,
    learnt: dict[str, Any],
) -> Save:
    """What writes checkpoints of `gradients` and of all that has been `learnt` beside them."""
    writer = checkpoint.Writer(
        run_dir=place.run_dir,
        rank=place.rank,
        leads=place.seat == 0,
        gather=gather,
        device=place.device.type,
        settings=deciding(settings.config),
        events=Events(place.run_dir),
    )

    def reduction() -> dict[str, Any]:
        return {name: taken(thing, name) for name, thing in learnt.items()}

    def save(step: int, seen: Observation) -> None:
        time_s = place.clock.now() / place.clock.dilation
        own = gradients.own() | {"reduction": reduction(), "seen": seen._asdict()}
        writer.write(step, time_s, gradients.shared(), own)

    reduction()  # what cannot be kept is told now, not when it is too late
    return save


def with_state(reduction: Reduction) -> dict[str, Any]:
    """What has been learnt so far, by name."""
    return {
        "compressor": reduction.compressor,
        "controller": reduction.controller,
        "feedback": reduction.feedback,
    }


def _replayed(settings: Settings, model: torch.nn.Module, exchange: Exchange) -> Replayed:
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    samples = settings["accumulate"] * settings["batch_size"]
    return Replayed(shapes, exchange, samples, settings.bucket_mb(), settings["seed"])


def load_weights(settings: Settings, model: torch.nn.Module, device: torch.device) -> None:
    """Those of `initial_weights`, if any."""
    if settings["initial_weights"]:
        saved = torch.load(settings["initial_weights"], weights_only=True, map_location=device)
        model.load_state_dict(saved["model"])


def pace_of(settings: Settings, architecture: Architecture) -> Pace:
    """Micro-batches but the last are computed whole before anything can be sent."""
    if settings["emulation.compute"] == "measured":
        return Measured()
    assert architecture.times is not None  # Settings.check
    times, dilation = architecture.times.at(settings["batch_size"]), settings["emulation.dilation"]
    before = (settings["accumulate"] - 1) * (times.forward_s + times.backward_s)
    return Paced((before + times.forward_s) * dilation, times.backward_s * dilation)
