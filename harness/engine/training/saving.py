"""What a rank has learnt: written to checkpoints, and put back from one."""

from dataclasses import asdict
from typing import Any

from controllers.base import Observation
from harness.config.run import Run
from harness.engine.training.gradients import Trained
from harness.engine.training.rank_context import RankContext
from harness.engine.training.rest import Save, no_checkpoint
from harness.engine.training.restoration import restored
from harness.engine.training.resume import Resumed
from harness.engine.training.snapshot import taken
from harness.engine.training.train import Exchanging
from harness.records import checkpoint
from harness.records.run_directory import Events


def go_on(begin: Resumed, place: RankContext, gradients: Trained, stateful: dict[str, Any]) -> None:
    """Put this rank where the checkpoint was taken; batches and clock begin there by themselves."""
    name = checkpoint.rank_file(place.rank, place.thread)
    own = checkpoint.load(begin.folder, name, place.device)
    for part, thing in stateful.items():
        restored(own["reduction"][part], thing, part)
    gradients.restore(checkpoint.load(begin.folder, checkpoint.MODEL, place.device), own)


def saver_of(run: Run, place: RankContext, gradients: Trained, stateful: dict[str, Any]) -> Save:
    """A function that writes checkpoints of `gradients`, and of what is `stateful` beside them.

    A replay has nothing to save.
    """
    if run.emulation.is_replay:
        return no_checkpoint
    writer = checkpoint.Writer(
        run_dir=place.run_dir,
        name=checkpoint.rank_file(place.rank, place.thread),
        leads=place.leads,
        gather=place.together.gather,
        device=place.device.type,
        settings=dict(run.deciding),
        events=place.once("events", lambda: Events(place.run_dir)) if place.tells else None,
    )

    def reduction() -> dict[str, Any]:
        return {name: taken(thing, name) for name, thing in stateful.items()}

    def save(step: int, seen: Observation | None) -> None:
        time_s = place.clock.now() / place.clock.dilation
        own = gradients.own() | {"reduction": reduction(), "seen": seen and asdict(seen)}
        writer.write(step, time_s, gradients.shared(), own)

    reduction()  # what cannot be kept is told now, not when it is too late
    return save


def with_state(exchange: Exchanging) -> dict[str, Any]:
    """Objects of the exchange that learn while it trains, by name."""
    reduction = exchange.reduction
    return {
        "compressor": reduction.compressor,
        "controller": reduction.controller,
        "feedback": reduction.feedback,
        **getattr(exchange, "stateful", {}),
    }
