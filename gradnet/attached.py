"""Attach a compressor and its controller to a user's DistributedDataParallel.

    handle = gradnet.attach(model, method="dc2_da2")

Each step that synchronises gradients is an exchange. It begins with a forward pass, during which
the controller chooses a density. It ends when the optimizer steps or the next forward begins.
`handle.seen` holds the measurements of the last exchange.
"""

import logging
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from controllers.base import Observation
from gradnet.loss_scale import LossScale, ScaledExchange
from gradnet.unused_parameters import UnusedParameters
from harness.clock import Clock
from harness.config import sweep
from harness.config.backends import BETWEEN_CPUS, BETWEEN_GPUS
from harness.config.refused import in_a_line
from harness.config.run import Run
from harness.config.sweep import OF_A_METHOD
from harness.config.typed import BadSetting, require
from harness.engine.exchange.bucket_lanes import Exchange, ExchangeError
from harness.engine.exchange.collectives import Workers
from harness.engine.training.build import assembled, reduction_of
from harness.engine.training.saving import SEEN, load_parts, with_state
from harness.engine.training.state import load_state_dict, state_dict
from harness.engine.training.step import StepExchange
from harness.records import environment
from harness.records.checkpoint import BadCheckpoint, refusing
from harness.validation import checked

log = logging.getLogger("gradnet")
KEYS = ("seed", *(key for key in OF_A_METHOD if key not in ("activations", "bucket_mb")))
# Settings of the run that attach does not use: the script has its own model and network.
ALONE = (
    "network=simulated",
    "workload=digits_convnet",
    "profile=static",
    "optimizer.momentum=0.0",
    "optimizer.nesterov=false",
)


@dataclass
class Attached:
    """A model whose gradients are exchanged by a compression method instead of DDP's all-reduce.

    Every rank of the model's process group has one. Close it before the process group is destroyed.
    Afterwards the model trains as plain DDP.
    """

    model: DistributedDataParallel
    run: Run  # only its method is used
    exchange: Exchange
    _handed_over: bool = field(default=False, init=False)  # all buckets of the exchange
    _seen: Observation | None = field(default=None, init=False)
    _futures: list[Future] = field(default_factory=list, init=False)  # one per bucket
    _scaled: ScaledExchange | None = field(default=None, init=False)
    _overflow_at: int | None = field(default=None, init=False)  # first rank with an overflow
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._step = StepExchange(self.exchange, self.exchange.clock)
        self._parameters = {id(parameter) for parameter in self.model.parameters()}
        self._unused = (
            UnusedParameters(self.model, self.exchange.reduction)
            if self.model.find_unused_parameters
            else None
        )
        self._loss_scale = LossScale()
        self._hooks = [
            self.model.register_forward_pre_hook(self._before_forward),
            self.model.register_forward_hook(self._after_forward),
            register_optimizer_step_pre_hook(self._before_update),
        ]
        self.model.register_comm_hook(None, self._hand_over)
        # Copies of the model, by pickle or deepcopy, are plain DDP models.
        self.model.__getstate__ = self._plain_state  # type: ignore[method-assign]

    @property
    def method(self) -> str:
        """The name of the method, as in the harness's results."""
        return self.run.label

    @property
    def seen(self) -> Observation | None:
        """Bytes and seconds of the last exchange, or None before the first has ended."""
        self._finish()
        return self._seen

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank's compressor, controller and error feedback.

        It has plain values and tensors, for torch.save. Every rank has its own.
        """
        seen = self.seen
        kept = {name: state_dict(part, name) for name, part in with_state(self.exchange).items()}
        return {"method": self.method, "parts": kept, "seen": state_dict(seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `state_dict` returned for the same method and the same model.

        Parameter names may differ by the prefixes that torch.compile and DDP add. Raise ValueError,
        in one line, for any other state, and then change nothing.
        """
        with refusing("the state"):
            if state["method"] != self.method:
                of = state["method"]
                raise BadCheckpoint(f"the state is of {of}, and attached is {self.method}")
            seen, parts = (
                load_state_dict(state["seen"], None, "seen", SEEN),
                with_state(self.exchange),
            )
            tensors = dict(self.model.module.named_parameters())
            for target in (deepcopy(parts), parts):  # check all of it on a copy first
                load_parts(state["parts"], target, tensors, self.exchange.workers)
        if seen:
            self._seen = seen
            self.exchange.observe(seen)

    def close(self) -> None:
        """End the exchange's threads and remove the hooks. Unsent residuals are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        for hook in self._hooks:
            hook.remove()
        if self._unused is not None:
            self._unused.close()
        self._loss_scale.close()
        del self.model.__getstate__
        self.exchange.close()

    def _plain_state(self) -> dict[str, Any]:
        """Return the model's state for pickle and deepcopy, without this exchange's hooks."""
        state = type(self.model).__getstate__(self.model)
        del state["__getstate__"]
        own = {hook.id for hook in self._hooks}
        for hooks in ("_forward_pre_hooks", "_forward_hooks"):
            kept = {number: hook for number, hook in state[hooks].items() if number not in own}
            state[hooks] = type(state[hooks])(kept)
        state["_comm_hooks"] = []
        return state

    def _before_forward(self, model: nn.Module, inputs: object) -> None:
        if self.model.training and torch.is_grad_enabled():
            joins = self.model._join_config.enable
            if joins and not getattr(self.model, "_divide_by_initial_world_size", True):
                raise BadSetting(
                    "model.join must have divide_by_initial_world_size=True with gradnet.attach, "
                    "got False: the mean is over all ranks"
                )
            self._finish()
            if self.model.require_backward_grad_sync:
                self._begin()

    def _after_forward(self, model: nn.Module, inputs: object, outputs: object) -> None:
        if self._step.began is not None and not self._handed_over:
            self.exchange.begin_backward()

    def _begin(self) -> None:
        if self._step.began is None:
            self._overflow_at = None
            self._step.begin(self.exchange.clock.now())

    def _hand_over(self, state: object, bucket: dist.GradBucket) -> Future[Tensor]:
        """Exchange one bucket of gradients (DDP's communication hook). Return a future of the mean.

        A rank that has run out of batches (`model.join`) is called here outside of any forward and
        backward pass, with zeros.
        """
        if self._is_closed:
            return allreduce_hook(self.model.process_group, bucket)
        if self._handed_over:
            self._finish()
        self._begin()
        if bucket.index() == 0:
            scale = self._loss_scale.take()
            # All ranks must decide alike, including those that have run out of batches.
            may_overflow = self._loss_scale.was_used or self.model._join_config.enable
            reduction, device = self.exchange.reduction, bucket.buffer().device
            self._scaled = ScaledExchange(reduction, scale, device) if may_overflow else None
        if self._scaled is not None:
            self._scaled.unscale(bucket.buffer())
        future = self.exchange.hook(state, bucket)
        self._futures.append(future)
        if self._scaled is not None:
            future = self._scaled.withhold(bucket.buffer())
        if bucket.is_last():
            self._handed_over = True
            # With static_graph, DDP waits for the first step's buckets before any callback runs.
            if torch._C._current_graph_task_id() == -1 or self.model.static_graph:
                self._end_backward()
            else:
                engine = torch.autograd.Variable._execution_engine
                engine.queue_callback(self._end_backward)  # before DDP's own
                if self._unused is not None:  # DDP finds the unused ones in its callback
                    restore = self._unused.restore
                    engine.queue_callback(lambda: engine.queue_callback(restore))
        return future

    def _end_backward(self) -> None:
        """Wait for the exchange. Raise the same ExchangeError on all ranks if it failed."""
        try:
            for future in self._futures:
                future.wait()
            if self._scaled is not None:
                rank, world_size = self.exchange.workers.rank, self.exchange.workers.world_size
                mine = rank if self._scaled.overflows else world_size
                first = int(self.exchange.agree(mine, "min"))
                self._overflow_at = first if first < world_size else None
                self._scaled.settle(counts=self._overflow_at is None)
        except Exception as error:
            raise self._failure(error) from error
        finally:
            self._futures = []

    def _failure(self, error: Exception) -> ExchangeError:
        """Return the error of the rank that failed first. Destroy the group, so no rank waits."""
        reason = str(self.exchange.error or error)
        group = self.exchange.workers.group
        with suppress(RuntimeError):  # the rank that hosts the store may have ended
            store = dist.PrefixStore("gradnet", dist.distributed_c10d._get_default_store())
            reason = store.compare_set(group.group_name, "", reason).decode()
        del self.exchange.workers.group
        dist.destroy_process_group(group)
        return ExchangeError(reason)

    def _before_update(self, optimizer: Optimizer, *given: object) -> None:
        groups = []
        for group in optimizer.param_groups:
            if not self._parameters.isdisjoint(map(id, group["params"])):
                groups.append(group)
        if not groups:
            return
        self._finish()
        # An optimizer that is fused with the scaler skips the step itself.
        if self._overflow_at is not None and getattr(optimizer, "found_inf", None) is None:
            raise FloatingPointError(
                f"the gradient of step {self.exchange.step - 1} is not finite at rank "
                f"{self._overflow_at}, and the optimizer steps: step by torch.amp.GradScaler, "
                "which skips such steps, or take a lower learning rate"
            )
        if "optimizer.momentum" in self.exchange.reduction.compressor.replaces:
            momentum = max(group.get("betas", [group.get("momentum", 0)])[0] for group in groups)
            does = f"0 with {self.method}, which does its work"
            require(momentum == 0, "the optimizer's momentum", momentum, does)

    def _finish(self) -> None:
        """Sum up the exchange if backward has ended, and pass it to the controller."""
        if self._step.began is None or not self._handed_over:
            return
        self._handed_over = False
        if self._unused is not None:
            self._unused.restore()
        if self._overflow_at is None:
            self._seen = self._step.end(self.exchange.step).seen
        else:  # undone: the controller sees the previous exchange again
            self._step.drop()
            self.exchange.step += 1
        self.exchange.workers.counted.clear()  # rows of a file that attach does not write


def attach(
    model: DistributedDataParallel,
    *overrides: str,
    timeout: timedelta | None = None,
    **choices: str | float | bool,
) -> Attached:
    """Exchange the gradients of `model` by a compression method, instead of DDP's all-reduce.

    Settings are those of the harness's command line: `method`, `compressor`, `controller`,
    `error_feedback`, `residual_decay`, `overlap` and `seed` by keyword, dotted keys as overrides:
    `attach(model, "controller.density=0.01", method="topk")`. All ranks of the model's process
    group must call it with the same arguments. `timeout` limits one collective (None: torch's
    default). DDP's own settings, such as its bucket size, still apply.

    Raise BadSetting, a ValueError of one line, for a method or a model that cannot be exchanged.
    The model is then unchanged.
    """
    _check_model(model)
    if dist.get_rank(model.process_group) == 0 and (advice := environment.to_compile()):
        log.warning(advice)
    said = [*overrides, *(f"{key}={_as_override(value)}" for key, value in choices.items())]
    run = _method(said, model)
    reduction = reduction_of(run, _workers(model, timeout))
    clock = Clock()
    clock.start()
    return Attached(model, run, assembled(run, reduction, clock, model.module))


def _check_model(model: DistributedDataParallel) -> None:
    """Raise BadSetting, naming the parameter, unless the model's gradients can be exchanged."""
    if not isinstance(model, DistributedDataParallel):
        wanted = "a torch.nn.parallel.DistributedDataParallel"
        raise BadSetting(f"model must be {wanted}, got {type(model).__name__}; wrap it first")
    named = [
        (name, parameter)
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in model.parameters_to_ignore
    ]
    require(bool(named), "model's parameters that require a gradient", len(named), "1 or more")
    first = named[0][1]
    for name, parameter in named:
        require(parameter.dtype == torch.float32, name, parameter.dtype, "torch.float32")
        one_device = f"on {first.device}, as {named[0][0]}"
        require(parameter.device == first.device, name, f"{parameter.device}", one_device)
    for name, module in model.module.named_modules():
        is_embedding = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        if is_embedding and module.sparse and module.weight.requires_grad:
            wanted = "a dense gradient: write sparse=False"
            raise BadSetting(f"{name}.weight".lstrip(".") + f" must have {wanted}, got sparse=True")
    hook = model._get_ddp_logging_data().get("comm_hook")
    wanted = "none: DDP has one in its life, so wrap the module in a new DistributedDataParallel"
    require(not hook, "model's communication hook", hook, wanted)
    precision = getattr(model, "mixed_precision", None)
    require(precision is None, "model's mixed_precision", precision, "None; use torch.autocast")


def _method(overrides: list[str], model: DistributedDataParallel) -> Run:
    """Return the checked run of the method in `overrides`. Raise BadSetting if unsupported."""
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        known = key.split(".")[0].split("/")[0] in KEYS
        require(known, "a setting of gradnet.attach", override, f"of {', '.join(KEYS)}")
    size = dist.get_world_size(model.process_group)
    with in_a_line(overrides), sweep.hydra():
        settings = sweep.plain_settings(sweep.load([*ALONE, f"workers={size}", *overrides]))
    method = settings["method.name"]
    unknown = "one that knows no profile: a network of one's own has none"
    require("profile" not in settings["controller"], "controller", method, unknown)
    run = checked(settings)
    kind = run.parallel.kind
    whole = "one that exchanges gradients in every step (parallel=data) with gradnet.attach"
    require(kind == "data", "method", f"{method} (parallel={kind})", whole)
    ddps = "uncompressed with gradnet.attach, as buckets are DDP's"
    require(run.fusion == "uncompressed", "fusion", run.fusion, ddps)
    sized = "null with gradnet.attach: DDP's bucket_cap_mb sizes buckets"
    require(run.full_bucket_mb is None, "bucket_mb", run.full_bucket_mb, sized)
    if model.find_unused_parameters:
        by_bucket = hasattr(run.compressor(), "server_errors")
        by_name = "False with this compressor, which keeps rounding errors by bucket"
        require(not by_bucket, "model's find_unused_parameters", True, by_name)
    return run


def _as_override(value: str | float | bool) -> str:
    """Return a value as text for the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _workers(model: DistributedDataParallel, timeout: timedelta | None) -> Workers:
    """Create the exchange's own process group of the model's ranks. Return its `Workers`."""
    ranks = dist.get_process_group_ranks(model.process_group)
    device = next(model.parameters()).device
    by_host = dist.get_backend(model.process_group) == BETWEEN_CPUS.name
    backend = BETWEEN_CPUS if device.type == "cpu" or by_host else BETWEEN_GPUS
    group = dist.new_group(
        ranks,
        timeout=timeout,
        backend=backend.name,
        use_local_synchronization=len(ranks) < dist.get_world_size(),
    )
    assert isinstance(group, dist.ProcessGroup)  # this rank is a member
    return Workers(group, device)
