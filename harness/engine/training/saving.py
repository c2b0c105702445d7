"""Checkpoints of one rank: save its state in training, check and load it when a run resumes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from compressors.base import Workers
from controllers.base import Observation
from harness.config.run import Run
from harness.engine.exchange.levels import TwoLevelReduction
from harness.engine.training.gradients import Trained
from harness.engine.training.rank_context import RankContext
from harness.engine.training.rest import Save, no_checkpoint
from harness.engine.training.resume import Resumed
from harness.engine.training.state import fit_parameters, load_state_dict, require_alike, state_dict
from harness.engine.training.step import Exchanging
from harness.records import checkpoint
from harness.records.checkpoint import BadCheckpoint, refusing
from harness.records.run_directory import Events

SEEN = Observation | None


def go_on(
    begin: Resumed, context: RankContext, gradients: Trained, stateful: Mapping[str, Any]
) -> None:
    """Load this rank's state from checkpoint `begin` into `gradients` and the `stateful` objects.

    Batches and clock start at the right step by themselves. Raise BadCheckpoint if any value
    differs in kind, shape or type from the one it replaces.
    """
    name = checkpoint.rank_file(context.rank, context.thread)
    own = checkpoint.load(begin.folder, name, context.device)
    shared = checkpoint.load(begin.folder, checkpoint.MODEL, context.device)
    model = gradients.model
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    workers: Any = context.workers
    with refusing(begin.folder):
        if levels := getattr(workers, "levels", None):  # each worker keeps its shards alone
            kept = own["reduction"]["slices"]
            slices = load_state_dict(kept, None, "slices", dict[str, tuple[int, int]])
            tensors = {name: tensors[name].reshape(-1)[slice(*at)] for name, at in slices.items()}
            workers = levels.between
        load_parts(own["reduction"], stateful, tensors, workers)
        weights = dict(model.state_dict())
        for kind in ("model", "anchors", "velocities"):  # the last two are of local steps
            for weight in weights if kind == "model" else shared.get(kind, ()):
                require_alike(shared[kind][weight], weights[weight], f"{kind}.{weight}")
        optimizer = _optimizer_state((shared | own)["optimizer"], gradients.optimizer)
        loaded: dict[str, Any] = {"optimizer": optimizer}
        for key, fresh in (gradients.own() | {"seen": None}).items():
            hint = SEEN if key == "seen" else gradients.annotations.get(key)
            if key == "random_cuda" and fresh is None:  # this machine has no GPU
                loaded[key] = None
            elif hint is not None:
                loaded[key] = load_state_dict(own[key], None, key, hint)
            elif key != "optimizer":
                copied = dict(fresh) if isinstance(fresh, dict) else fresh
                loaded[key] = load_state_dict(own[key], copied, key)
        gradients.load_state_dict(shared, loaded)


def load_parts(
    kept: Any, parts: Mapping[str, Any], tensors: Mapping[str, Tensor], workers: Workers
) -> None:
    """Load the states in `kept` into `parts`, in place, by name.

    `tensors` are the model's tensors by name. Raise BadCheckpoint if a state does not fit.
    """
    for name, part in parts.items():
        if name not in kept:
            raise BadCheckpoint(f"{name} is not in the checkpoint: it is of another version")
        load_state_dict(kept[name], part, name)
        if name in ("compressor", "feedback"):
            fit_parameters(part, tensors, workers, name)


def _optimizer_state(kept: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return an optimizer state with the parameters' values in `kept` and the current settings.

    A step of the same optimizer on meta tensors gives the expected names, shapes and types. Raise
    BadCheckpoint if `kept` differs from them.
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
        state[number] = load_state_dict(dict(values), wanted, where)
        for name, value in state[number].items():
            if isinstance(value, Tensor):
                require_alike(value, value, f"{where}[{name!r}]")
    return {"state": state, "param_groups": fresh["param_groups"]}


def saver_of(
    run: Run, context: RankContext, gradients: Trained, stateful: Mapping[str, Any]
) -> Save:
    """Return the function that writes a checkpoint of `gradients` and the `stateful` objects.

    It does nothing if `stateful` is empty, as in a replay. Raise TypeError for a state that a
    checkpoint cannot keep.
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
        return {name: state_dict(part, name) for name, part in stateful.items()}

    def save(step: int, seen: Observation | None) -> None:
        time_s = context.clock.now() / context.clock.dilation
        own = gradients.own() | {"seen": seen}
        kept = {name: state_dict(value, name) for name, value in own.items()}
        writer.write(step, time_s, gradients.shared(), kept | {"reduction": reduction()})

    reduction()  # raises now, not at the first checkpoint
    return save


def with_state(exchange: Exchanging) -> dict[str, Any]:
    """Return the exchange's objects whose state changes during training, by name."""
    reduction = exchange.reduction
    return {
        "compressor": reduction.compressor,
        "controller": reduction.controller,
        "feedback": reduction.feedback,
        **getattr(exchange, "stateful", {}),
        **({"slices": reduction.slices} if isinstance(reduction, TwoLevelReduction) else {}),
    }
