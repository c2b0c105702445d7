"""A compressor and its controller on one's own DistributedDataParallel.

    handle = gradnet.attach(model, method="dc2_da2")

A step that synchronises gradients is an exchange. It begins with a forward pass, during which the
controller chooses a density, and has ended when the optimizer steps or the model goes forward
again. What the last one took is `handle.seen`.
"""

import logging
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from controllers.base import Observation
from harness.clock import Clock
from harness.config import sweep
from harness.config.refused import in_a_line
from harness.config.run import Run
from harness.config.sweep import OF_A_METHOD
from harness.config.typed import BadSetting, require
from harness.engine.exchange.thread import Exchange
from harness.engine.exchange.workers import Workers
from harness.engine.training.build import assembled, reduction_of
from harness.engine.training.load_state_dict import load_state_dict
from harness.engine.training.saving import with_state
from harness.engine.training.state_dict import state_dict
from harness.engine.training.step import StepExchange
from harness.records import environment
from harness.validation import checked

log = logging.getLogger("gradnet")
KEYS = ("seed", *(key for key in OF_A_METHOD if key not in ("activations", "bucket_mb")))
# What there is no network of ours for, and no model: only the method of this run counts.
ALONE = ("network=simulated", "workload=digits_convnet", "profile=static")


@dataclass
class Attached:
    """Handle of a model whose gradients are exchanged by a method.

    All ranks of the model's process group have one. `close` it before the process group is
    destroyed; the model cannot train any more then.
    """

    model: DistributedDataParallel
    run: Run  # of which only the method counts
    exchange: Exchange
    _handed_over: bool = field(default=False, init=False)  # all buckets of the exchange
    _seen: Observation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._step = StepExchange(self.exchange, self.exchange.clock)
        self._parameters = {id(each) for each in self.model.parameters()}
        self._hooks = [
            self.model.register_forward_pre_hook(self._before_forward),
            self.model.register_forward_hook(self._after_forward),
            register_optimizer_step_pre_hook(self._before_update),
        ]
        self.model.register_comm_hook(None, self._hand_over)

    @property
    def method(self) -> str:
        """Name of the method, as the harness's results have it."""
        return self.run.label

    @property
    def seen(self) -> Observation | None:
        """What the last exchange took, in bytes and seconds; None before the first has ended."""
        self._finish()
        return self._seen

    def state_dict(self) -> dict[str, Any]:
        """What this rank's compressor, controller and error feedback have learnt.

        Of plain values and tensors, for torch.save; every rank has its own.
        """
        seen = self.seen
        kept = {name: state_dict(each, name) for name, each in with_state(self.exchange).items()}
        return {"method": self.method, "parts": kept, "seen": seen and asdict(seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; ValueError if that was of another method."""
        if state["method"] != self.method:
            raise ValueError(f"the state is of {state['method']}, and attached is {self.method}")
        for name, part in with_state(self.exchange).items():
            load_state_dict(state["parts"][name], part, name)
        if state["seen"]:
            self._seen = Observation(**state["seen"])
            self.exchange.observe(self._seen)

    def close(self) -> None:
        """End the threads of the exchange, and forget the hooks."""
        for hook in self._hooks:
            hook.remove()
        self.exchange.close()

    def _before_forward(self, model: nn.Module, inputs: object) -> None:
        if self.model.training and torch.is_grad_enabled():
            self._finish()
            if self.model.require_backward_grad_sync:
                self._begin()

    def _after_forward(self, model: nn.Module, inputs: object, outputs: object) -> None:
        if self._step.under_way and not self._handed_over:
            self.exchange.begin_backward()

    def _begin(self) -> None:
        if not self._step.under_way:
            self._step.begin(self.exchange.clock.now())

    def _hand_over(self, state: object, bucket: dist.GradBucket) -> Future[Tensor]:
        """DDP's communication hook."""
        self._begin()
        future = self.exchange.hook(state, bucket)
        self._handed_over = bucket.is_last()
        return future

    def _before_update(self, optimizer: Optimizer, *given: object) -> None:
        groups = [each for each in optimizer.param_groups if self._owns(each["params"])]
        if groups:
            self._finish()
            if "optimizer.momentum" in self.exchange.reduction.compressor.replaces:
                momentum = max(each.get("momentum", 0) for each in groups)
                does = f"0 with {self.method}, which does its work"
                require(momentum == 0, "the optimizer's momentum", momentum, does)

    def _owns(self, parameters: list[Tensor]) -> bool:
        return any(id(each) in self._parameters for each in parameters)

    def _finish(self) -> None:
        """Sum up the exchange that backward has ended with, and show the controller."""
        if self._step.under_way and self._handed_over:
            self._handed_over = False
            self._seen = self._step.end(self.exchange.step).seen
            self.exchange.workers.counted.clear()  # a row each, which nobody here writes


def attach(
    model: DistributedDataParallel,
    *overrides: str,
    timeout: timedelta | None = None,
    **choices: str | float | bool,
) -> Attached:
    """Exchange the gradients of `model` by a method, instead of DDP's all-reduce.

    The method is said as on the harness's command line: `method`, `compressor`, `controller`,
    `error_feedback`, `residual_decay`, `overlap` and `seed` by name, dotted keys as overrides:
    `attach(model, "controller.density=0.01", method="topk")`. All ranks of the model's process
    group call it, and say the same. `timeout` is of a collective (None: torch's default).

    BadSetting, a ValueError, for a method that cannot be, or a model whose gradients are not
    float32. What DDP is asked for, as the size of its buckets, stays.
    """
    if not isinstance(model, DistributedDataParallel):
        wanted = "a torch.nn.parallel.DistributedDataParallel"
        raise BadSetting(f"model must be {wanted}, got {type(model).__name__}; wrap it first")
    kinds = {each.dtype for each in model.parameters() if each.requires_grad}
    require(kinds == {torch.float32}, "model's parameters", sorted(map(str, kinds)), "float32")
    if dist.get_rank(model.process_group) == 0 and (told := environment.to_compile()):
        log.warning(told)
    run = _method([*overrides, *(f"{key}={_said(value)}" for key, value in choices.items())], model)
    reduction = reduction_of(run, _workers(model, timeout))
    exchange = assembled(run, reduction, _started(), model.module)
    return Attached(model, run, exchange)


def _method(overrides: list[str], model: DistributedDataParallel) -> Run:
    """The run that `overrides` compose, whose method is checked."""
    for each in overrides:
        key = each.partition("=")[0].lstrip("+~")
        known = key.split(".")[0].split("/")[0] in KEYS
        require(known, "a setting of gradnet.attach", each, f"of {', '.join(KEYS)}")
    size = dist.get_world_size(model.process_group)
    with in_a_line(overrides), sweep.hydra():
        settings = sweep.plain_settings(sweep.load([*ALONE, f"workers={size}", *overrides]))
    unknown = "one that knows no profile: a network of one's own has none"
    require("profile" not in settings["controller"], "controller", settings["method.name"], unknown)
    run = checked(settings)
    ddps = "uncompressed with gradnet.attach, as buckets are DDP's"
    require(run.fusion == "uncompressed", "fusion", run.fusion, ddps)
    sized = "per_bucket or after_backward with gradnet.attach: DDP's bucket_cap_mb sizes buckets"
    require(run.full_bucket_mb is None, "overlap", run.overlap, sized)
    return run


def _said(value: str | float | bool) -> str:
    """A value as a command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _workers(model: DistributedDataParallel, timeout: timedelta | None) -> Workers:
    """The ranks of the model's group, in a group of their own, with an order of its own."""
    ranks = dist.get_process_group_ranks(model.process_group)
    device = next(model.parameters()).device
    by_gloo = device.type == "cpu" or dist.get_backend(model.process_group) == "gloo"
    group = dist.new_group(
        ranks,
        timeout=timeout,
        backend="gloo" if by_gloo else "nccl",
        use_local_synchronization=len(ranks) < dist.get_world_size(),
    )
    assert isinstance(group, dist.ProcessGroup)  # this rank is a member
    return Workers(group, device)


def _started() -> Clock:
    clock = Clock()
    clock.start()
    return clock
