"""A trainer of a run, put together from its settings, or from a checkpoint."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from compressors.base import Compressor
from harness.exchange.feedback import Feedback, Forget, Residual
from harness.exchange.reduction import Reduction
from harness.parameter_server.assembly import CPU, Place, batches_of, built_model
from harness.parameter_server.gradient import Captured, Drain, Gradient
from harness.parameter_server.line import Line, join
from harness.parameter_server.replica import Replica
from harness.parameter_server.trainer import Trainer
from harness.records import Events, Table
from harness.settings import Settings
from harness.training import checkpoint
from harness.training.assembly import pace_of
from harness.training.restoration import restored
from harness.training.resume import deciding, resumed
from harness.training.snapshot import taken
from harness.training.task import Task

REJOIN_S = 2.0  # to reach a server that was there; a run waits longer for the others' reports


def trainer_of(settings: Settings, place: Place, rank: int, again: bool, cores: int) -> Trainer:
    """Ready to join; one that comes `again` has nothing left of what its rank has learnt."""
    layout, begin = settings.build("parallel"), resumed(settings["resume_from"])
    compressor = settings.build("compressor")
    feedback: Feedback = Residual() if settings["error_feedback"] else Forget()
    replicas = [
        _replica(settings, place, (rank, thread), compressor, feedback)
        for thread in range(layout.threads)
    ]
    learnt = Learnt(replicas, {"compressor": compressor, "feedback": feedback})
    torch.manual_seed(settings["seed"] * settings["workers"] + rank)  # dropout differs by rank
    if begin is not None and not again:
        learnt.restore(checkpoint.load(begin.folder, checkpoint.rank_file(rank), CPU))
    events = Events(place.run_dir)
    return Trainer(
        rank=rank,
        replicas=replicas,
        batches=lambda first: iter(batches_of(settings, rank, first)),
        steps=settings.total_steps(batches_of(settings, rank).steps_per_epoch),
        clock=place.clock,
        join=_joiner(place, settings["timeouts.start_s"]),
        may_rejoin=layout.mode == "async",
        save=partial(_save, settings, place, rank, learnt, events),
        table=Table(place.run_dir, "steps.csv"),
        events=events,
        cores=cores,
    )


def _replica(
    settings: Settings,
    place: Place,
    where: tuple[int, int],
    compressor: Compressor,
    feedback: Feedback,
) -> Replica:
    """Of rank and thread `where`."""
    layout, model = settings.build("parallel"), built_model(settings)
    captured, (rank, thread) = Captured(), where
    reduction = Reduction(compressor, settings.build("controller"), "local", feedback, captured)
    seed = (settings["seed"] * settings["workers"] + rank) * layout.threads + thread
    named = dict(model.named_parameters())
    gradient = Gradient(
        reduction=reduction,
        captured=captured,
        drain=Drain(layout.drain_period, layout.drain == "flush", seed),
        names=tuple(named),
        shapes=[parameter.shape for parameter in named.values()],
    )
    return Replica(
        rank=rank,
        model=model,
        task=Task(settings.build("dataset").metric, CPU, settings["precision"]),
        gradient=gradient,
        pull_every=layout.pull_every,
        pace=pace_of(settings, settings.build("model")),
        clock=place.clock,
        accumulate=settings["accumulate"],
    )


def _joiner(place: Place, start_s: float) -> Any:
    """What opens a session: the first may have to wait until the server is there."""
    waits = iter([start_s])

    def opened() -> Line:
        return join(place.address, place.port, place.timeout_s, next(waits, REJOIN_S))

    return opened


@dataclass
class Learnt:
    """What a rank would lose with its process."""

    replicas: list[Replica]
    shared: dict[str, Any]  # by its threads

    def state(self) -> dict[str, Any]:
        return {
            "buffers": dict(self.replicas[0].model.named_buffers()),
            "reduction": {name: taken(thing, name) for name, thing in self.shared.items()},
            "drains": [each.gradient.drain.generator.get_state() for each in self.replicas],
            "random": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, thing in self.shared.items():
            restored(state["reduction"][name], thing, name)
        for replica, generator in zip(self.replicas, state["drains"], strict=True):
            replica.gradient.drain.generator.set_state(generator)
            for name, buffer in replica.model.named_buffers():
                buffer.copy_(state["buffers"][name])
        torch.set_rng_state(state["random"])


def _save(
    settings: Settings, place: Place, rank: int, learnt: Learnt, events: Events, step: int
) -> Tensor:
    """Write this rank's file of a checkpoint; its name and digest, uint8."""
    told: list[checkpoint.Files] = []

    def gather(mine: checkpoint.Files) -> list[checkpoint.Files]:
        told.append(mine)
        return told

    same = deciding(settings.config)
    writer = checkpoint.Writer(place.run_dir, rank, False, gather, "cpu", same, events)
    writer.write(step, place.clock.time_s() or 0.0, {}, learnt.state())
    [(name, digest)] = told[0].items()
    return torch.frombuffer(bytearray(f"{name} {digest}".encode()), dtype=torch.uint8)
