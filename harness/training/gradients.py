"""Where a rank's gradients come from: a model under DDP on real data, or bucket sizes alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from harness.exchange.thread import Exchange, ExchangeError
from harness.training.task import Memory, Task

MIB = 1 << 20
MOST_NAMED = 5  # parameters in one message
FIRST_BUCKET_MB, BUCKET_MB = 1, 25  # DDP's own; the first is small so that sending starts early


@dataclass
class Trained:
    """Real gradients of `model` on `batches`; SGD with momentum on their mean.

    `learning_rate` maps a step to its rate. Batch-norm statistics stay local to a rank, as without
    DDP's buffer broadcast; rank 0's are evaluated and saved. A batch is cut into `accumulate` equal
    micro-batches, whose gradients are averaged here and exchanged during the last one's backward;
    batch-norm sees one at a time. With `task.precision` bf16 a forward, and what it evaluates, runs
    under autocast: weights, gradients and loss stay float32. `clip_norm` bounds the norm of the
    mean gradient of all parameters together.
    """

    model: nn.Module
    batches: Any  # iterator of (inputs, labels) of this rank
    test_set: Any  # this rank's share of the test set: iterator of (inputs, labels)
    optimizer: torch.optim.Optimizer
    learning_rate: Callable[[int], float]
    exchange: Exchange
    samples: int
    device: torch.device
    bucket_mb: float | None  # None: DDP's own sizes
    task: Task
    accumulate: int = 1
    memory: Memory = field(default_factory=Memory)
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        self._settling = False
        self._arrived: set[int] = set()  # ids of the parameters whose bucket was handed over
        self._ddp = DistributedDataParallel(
            self.model, bucket_cap_mb=self.bucket_mb, broadcast_buffers=False
        )
        self._ddp.register_comm_hook(None, self._hand_over)

    def settle(self, inputs: Tensor) -> None:
        """Take the one-time costs of a step, and let DDP lay out its buckets for good.

        Two steps without an exchange, which change nothing; `inputs` is any micro-batch. ValueError
        for a model with a parameter that no gradient reaches.
        """
        before = [buffer.clone() for buffer in self.model.buffers()]
        self._settling = True
        for some in (inputs, inputs[:2]):
            self._arrived.clear()
            self.task.scores(self._ddp, some).sum().backward()
            self._require_all_arrived()
            self.optimizer.zero_grad()
        self._settling = False
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)

    def compute(self, step: int) -> float:
        inputs, labels = next(self.batches)
        chunks = inputs.chunk(self.accumulate), labels.chunk(self.accumulate)
        *first, last = zip(range(self.accumulate), *chunks, strict=True)
        self.memory.begin()
        self._arrived.clear()
        total = 0.0
        with self._ddp.no_sync():
            for part in first:
                loss = self._loss(*part)
                loss.backward()
                total += loss.item()
        loss = self._loss(*last)
        self.exchange.begin_backward()
        try:
            loss.backward()
        except RuntimeError as error:
            # Through a future an exception loses its type and traceback: show the thread's own.
            raise ExchangeError(str(self.exchange.error or error)) from self.exchange.error or error
        self._require_all_arrived()
        return total + loss.item()

    def _loss(self, part: int, inputs: Tensor, labels: Tensor) -> Tensor:
        """This micro-batch's part of the mean over the batch."""
        scores = self.task.scores(self._ddp, inputs, self.memory, part)
        return self.task.loss(scores, labels) / self.accumulate

    def _hand_over(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """DDP's communication hook."""
        self._arrived.update(map(id, bucket.parameters()))
        if not self._settling:
            return self.exchange.hook(state, bucket)
        devices: list[Any] | None = [self.device] if self.device.type == "cuda" else None
        future: torch.futures.Future[Tensor] = torch.futures.Future(devices=devices)
        future.set_result(bucket.buffer())
        return future

    def _require_all_arrived(self) -> None:
        """A bucket that lacks a gradient is never exchanged: the others would wait for it."""
        missing = {
            name: parameter.grad is None
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad and id(parameter) not in self._arrived
        }
        if missing:
            names = [name for name, empty in missing.items() if empty] or list(missing)
            raise ValueError(
                f"model: no gradient reached {', '.join(names[:MOST_NAMED])}"
                f"{' and others' if len(names) > MOST_NAMED else ''}; every parameter must take "
                "part in every step: use it, or set requires_grad = False"
            )

    def update(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)
        self.model.eval()
        sums = self.task.tested(self.model, self.test_set())
        dist.all_reduce(sums)
        self.model.train()
        return self.task.metrics(sums)

    def shared(self) -> dict[str, Any]:
        """What a checkpoint needs of any one rank."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def own(self) -> dict[str, Any]:
        """What it needs of every rank: statistics of its batches, what the model carries on, where
        its random numbers are."""
        on_cuda = self.device.type == "cuda"
        return {
            "buffers": dict(self.model.named_buffers()),
            "carried": self.memory.states,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if on_cuda else None,
        }

    def restore(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        """Be where `shared` and this rank's `own` were taken; batches are another matter."""
        self.model.load_state_dict(shared["model"])
        self.optimizer.load_state_dict(shared["optimizer"])
        for name, buffer in self.model.named_buffers():
            buffer.copy_(own["buffers"][name])
        self.memory.states = own["carried"]
        torch.set_rng_state(own["random"])
        if own["random_cuda"] is not None:
            torch.cuda.set_rng_state(own["random_cuda"], self.device)


@dataclass
class Replayed:
    """True sizes and true traffic without computation: seeded noise in the buckets DDP would make.

    `parameters` maps names to shapes in registration order. There is no loss and nothing to
    evaluate or save.
    """

    parameters: dict[str, torch.Size]
    exchange: Exchange
    samples: int
    bucket_mb: float | None  # None: DDP's own sizes
    seed: int
    _buckets: list[tuple[tuple[str, ...], list[Tensor], Tensor, Tensor]] = field(
        default_factory=list, init=False
    )

    def __post_init__(self) -> None:
        noise = torch.Generator().manual_seed(self.seed)
        sizes = {name: shape.numel() for name, shape in self.parameters.items()}
        for names in bucket_names(sizes, self.bucket_mb):
            pattern = torch.randn(sum(sizes[name] for name in names), generator=noise)
            buffer = torch.empty_like(pattern)
            parts = zip(names, buffer.split([sizes[name] for name in names]), strict=True)
            views = [part.view(self.parameters[name]) for name, part in parts]
            self._buckets.append((names, views, pattern, buffer))

    def compute(self, step: int) -> float:
        futures = []
        for names, views, pattern, buffer in self._buckets:
            buffer.copy_(pattern)
            last = buffer is self._buckets[-1][-1]
            futures.append(self.exchange.submit(buffer, names, views, last=last))
        for future in futures:
            try:
                future.wait()
            except RuntimeError as error:
                cause = self.exchange.error or error
                raise ExchangeError(str(cause)) from cause
        return float("nan")

    def update(self, step: int) -> None:
        return None

    def evaluate(self) -> dict[str, float]:
        return {}


def bucket_names(parameters: dict[str, int], bucket_mb: float | None) -> list[tuple[str, ...]]:
    """DDP's buckets by parameter name, last parameter first.

    Each is full at `bucket_mb` MiB: with 0 every parameter is one. None means DDP's own sizes,
    1 MiB and then 25.
    """
    first_mb, mb = (FIRST_BUCKET_MB, BUCKET_MB) if bucket_mb is None else (bucket_mb, bucket_mb)
    buckets: list[tuple[str, ...]] = []
    current: list[str] = []
    filled, limit = 0, first_mb * MIB
    for name in reversed(parameters):
        current.append(name)
        filled += 4 * parameters[name]
        if filled >= limit:
            buckets.append(tuple(current))
            current, filled, limit = [], 0, mb * MIB
    if current:
        buckets.append(tuple(current))
    return buckets


def largest_bucket_bytes(parameters: dict[str, int], bucket_mb: float | None) -> int:
    """Bytes of the largest of those buckets; one parameter may be more than a full one."""
    buckets = bucket_names(parameters, bucket_mb)
    return max(4 * sum(parameters[name] for name in names) for names in buckets)
