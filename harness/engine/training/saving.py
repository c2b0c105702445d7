"""What a rank has learnt: written to checkpoints, and put back from one."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from controllers.base import Observation
from harness.config.run import Run
from harness.engine.training.gradients import Trained
from harness.engine.training.load_state_dict import load_state_dict
from harness.engine.training.rank_context import RankContext
from harness.engine.training.rest import Save, no_checkpoint
from harness.engine.training.resume import Resumed
from harness.engine.training.state_dict import state_dict
from harness.engine.training.step import Exchanging
from harness.records import checkpoint
from harness.records.run_directory import Events


def go_on(
    begin: Resumed, context: RankContext, gradients: Trained, stateful: Mapping[str, Any]
) -> None:
    """Put this rank where the checkpoint was taken; batches and clock begin there by themselves."""
    name = checkpoint.rank_file(context.rank, context.thread)
    own = checkpoint.load(begin.folder, name, context.device)
    for part, thing in stateful.items():
        load_state_dict(own["reduction"][part], thing, part)
    gradients.load_state_dict(checkpoint.load(begin.folder, checkpoint.MODEL, context.device), own)


def saver_of(
    run: Run, context: RankContext, gradients: Trained, stateful: Mapping[str, Any]
) -> Save:
    """A function that writes checkpoints of `gradients`, and of what is `stateful` beside them.

    Where nothing is, as in a replay, nothing is saved.
    """
    if not stateful:
        return no_checkpoint
    writer = checkpoint.Writer(
        run_dir=context.run_dir,
        name=checkpoint.rank_file(context.rank, context.thread),
        leads=context.leads,
        gather=context.together.gather,
        device=context.device.type,
        settings=dict(run.deciding),
        events=context.once("events", lambda: Events(context.run_dir)) if context.tells else None,
    )

    def reduction() -> dict[str, Any]:
        return {name: state_dict(thing, name) for name, thing in stateful.items()}

    def save(step: int, seen: Observation | None) -> None:
        time_s = context.clock.now() / context.clock.dilation
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
