"""What a rank has learnt: written to checkpoints, and put back from one."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_type_hints

import torch
from torch import Tensor

from compressors.base import Workers
from controllers.base import Observation
from harness.config.run import Run
from harness.engine.exchange.exchange_stats import Exchanged
from harness.engine.training.gradients import Trained
from harness.engine.training.load_state_dict import (
    fit_parameters,
    load_state_dict,
    require_alike,
)
from harness.engine.training.rank_context import RankContext
from harness.engine.training.rest import Save, no_checkpoint
from harness.engine.training.resume import Resumed
from harness.engine.training.state_dict import state_dict
from harness.engine.training.step import Exchanging
from harness.records import checkpoint
from harness.records.checkpoint import BadCheckpoint, refusing
from harness.records.run_directory import Events

SEEN = get_type_hints(Observation)
OWN = {  # kinds of what is empty before the first step, by name
    "carried": dict[int, tuple[Tensor, ...]],
    "sent": dict[str, Tensor],
    "random_cuda": Tensor | None,
    "outer": {
        "seen": SEEN,
        "took": get_type_hints(Exchanged),
        "under": list[int],
        "buckets": list[Tensor],
    },
}


def go_on(
    begin: Resumed, context: RankContext, gradients: Trained, stateful: Mapping[str, Any]
) -> None:
    """Put this rank where the checkpoint was taken; batches and clock begin there by themselves.

    Raise BadCheckpoint if anything in it differs in kind, shape or type from what is there.
    """
    name = checkpoint.rank_file(context.rank, context.thread)
    own = checkpoint.load(begin.folder, name, context.device)
    shared = checkpoint.load(begin.folder, checkpoint.MODEL, context.device)
    model = gradients.model
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with refusing(begin.folder):
        load_parts(own["reduction"], stateful, tensors, context.workers)
        gradients.load_state_dict(*_compared(shared, own, gradients))


def load_parts(
    kept: Any, parts: Mapping[str, Any], tensors: Mapping[str, Tensor], workers: Workers
) -> None:
    """Put the states in `kept` into `parts`, in place, by name.

    `tensors` are those of the model, by name. Raise BadCheckpoint where they do not fit.
    """
    for name, part in parts.items():
        if name not in kept:
            raise BadCheckpoint(f"{name} is not in the checkpoint: it is of another version")
        load_state_dict(kept[name], part, name)
        if name in ("compressor", "feedback"):
            fit_parameters(part, tensors, workers, name)


def load_seen(kept: Any) -> Observation | None:
    """The last observation, from its dictionary; BadCheckpoint if a value is of another kind."""
    seen = _like(kept, None, "seen", SEEN)
    with refusing("seen"):
        return Observation(**seen) if seen else None


def _like(kept: Any, fresh: Any, where: str, hint: Any = Any) -> Any:
    """`kept`, plain values, in new containers, compared with `fresh` and `hint`."""
    with refusing(where):
        return load_state_dict(state_dict(kept, where), fresh, where, hint)


def _compared(
    shared: dict[str, Any], own: dict[str, Any], gradients: Trained
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both parts of a checkpoint of `gradients`, with nothing in them of another kind than there.

    Of the optimizer the state of parameters is taken, and its settings are those that are there.
    """
    weights = dict(gradients.model.state_dict())
    kept = {name: shared["model"][name] for name in weights}
    for name, weight in weights.items():
        require_alike(kept[name], weight, f"model.{name}")
    fresh = {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in gradients.own().items()
    }
    optimizer = _optimizer_state((shared | own)["optimizer"], gradients.optimizer)
    rest = {name: own[name] for name in fresh if name != "optimizer"}
    apart = ("random_cuda", "optimizer")  # the former is of as many devices as there were
    plain = {name: value for name, value in fresh.items() if name not in apart}
    compared = _like(rest, plain, "own", OWN) | {"optimizer": optimizer, "seen": own["seen"]}
    if fresh["random_cuda"] is None:
        compared["random_cuda"] = None
    load_seen(own["seen"])
    for common in ("anchors", "velocities"):  # of local steps
        for name, value in shared.get(common, {}).items():
            require_alike(value, weights[name], f"{common}.{name}")
    return {**shared, "model": kept}, compared


def _optimizer_state(kept: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """State of an optimizer with that of parameters in `kept`, and with its own settings.

    What there is to be is found by a step of one of the same kind, of shapes alone.
    """
    shapes: Any = []
    for group in optimizer.param_groups:
        alike = [torch.zeros_like(each, device="meta") for each in group["params"]]
        for parameter in alike:
            parameter.grad = torch.zeros_like(parameter)
        shapes.append({**group, "params": alike})
    kind: Any = type(optimizer)
    example = kind(shapes)
    example.step()
    expected, fresh = example.state_dict()["state"], optimizer.state_dict()
    state: dict[int, Any] = {}
    if not isinstance(kept, dict) or not isinstance(kept.get("state"), dict):
        raise BadCheckpoint("optimizer.state is no dictionary: the checkpoint is damaged")
    for number, values in kept["state"].items():
        where = f"optimizer.state[{number!r}]"
        if number not in expected:
            raise BadCheckpoint(f"{where} is of no parameter: there are {len(expected)}")
        wanted = dict(expected[number])
        if {*values} != {*wanted}:
            raise BadCheckpoint(f"{where} has {sorted(values)}, and needs {sorted(wanted)}")
        state[number] = _like(dict(values), wanted, where)
        for name, value in state[number].items():
            if isinstance(value, Tensor):
                require_alike(value, value, f"{where}[{name!r}]")
    return {"state": state, "param_groups": fresh["param_groups"]}


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
