"""Where a rank's gradients come from: a model under DDP on real data, or bucket sizes alone."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from harness.exchange import Exchange, ExchangeError

MIB = 1 << 20
FIRST_BUCKET_MB, BUCKET_MB = 1, 25  # DDP's own; the first is small so that sending starts early


@dataclass
class Trained:
    """Real gradients of `model` on `batches`; SGD with momentum on their mean.

    `learning_rate` maps a step to its rate. Batch-norm statistics stay local to a rank, as without
    DDP's buffer broadcast; rank 0's are evaluated and saved.
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
    metric: str

    def __post_init__(self) -> None:
        self._ddp = DistributedDataParallel(
            self.model, bucket_cap_mb=self.bucket_mb, broadcast_buffers=False
        )
        self._ddp.register_comm_hook(None, self.exchange.hook)

    def compute(self, step: int) -> float:
        inputs, labels = next(self.batches)
        loss = cross_entropy(self._ddp(inputs.to(self.device)), labels.to(self.device))
        self.exchange.begin_backward()
        try:
            loss.backward()
        except RuntimeError as error:
            # Through a future an exception loses its type and traceback: show the thread's own.
            raise ExchangeError(str(self.exchange.error or error)) from self.exchange.error or error
        return loss.item()

    def update(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)
        self.model.eval()
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)  # correct, loss, samples
        for inputs, labels in self.test_set():
            outputs, labels = self.model(inputs.to(self.device)), labels.to(self.device)
            sums[0] += (outputs.argmax(1) == labels).sum()
            sums[1] += cross_entropy(outputs, labels, reduction="sum")
            sums[2] += len(labels)
        dist.all_reduce(sums)
        self.model.train()
        correct, loss, samples = sums.tolist()
        return {self.metric: correct / samples, "loss": loss / samples}

    def save(self, path: Path, step: int) -> None:
        content = {
            "step": step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        temporary = path.with_suffix(".partial")
        torch.save(content, temporary)
        os.replace(temporary, path)


@dataclass
class Replayed:
    """True sizes and true traffic without computation: seeded noise in the buckets DDP would make.

    `parameters` maps names to element counts in registration order. There is no loss and nothing
    to evaluate or save.
    """

    parameters: dict[str, int]
    exchange: Exchange
    samples: int
    bucket_mb: float | None  # None: DDP's own sizes
    seed: int
    _buckets: list[tuple[tuple[str, ...], list[int], Tensor, Tensor]] = field(
        default_factory=list, init=False
    )

    def __post_init__(self) -> None:
        noise = torch.Generator().manual_seed(self.seed)
        for names in bucket_names(self.parameters, self.bucket_mb):
            sizes = [self.parameters[name] for name in names]
            pattern = torch.randn(sum(sizes), generator=noise)
            self._buckets.append((names, sizes, pattern, torch.empty_like(pattern)))

    def compute(self, step: int) -> float:
        futures = []
        for names, sizes, pattern, buffer in self._buckets:
            buffer.copy_(pattern)
            futures.append(self.exchange.submit(buffer, names, list(buffer.split(sizes))))
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

    def save(self, path: Path, step: int) -> None:
        return None


def bucket_names(parameters: dict[str, int], bucket_mb: float | None) -> list[tuple[str, ...]]:
    """DDP's buckets by parameter name, last parameter first.

    Each is full at `bucket_mb` MiB; None means DDP's own sizes, 1 MiB and then 25.
    """
    buckets: list[tuple[str, ...]] = []
    current: list[str] = []
    filled, limit = 0, (bucket_mb or FIRST_BUCKET_MB) * MIB
    for name in reversed(parameters):
        current.append(name)
        filled += 4 * parameters[name]
        if filled >= limit:
            buckets.append(tuple(current))
            current, filled, limit = [], 0, (bucket_mb or BUCKET_MB) * MIB
    if current:
        buckets.append(tuple(current))
    return buckets


def largest_bucket_bytes(parameters: dict[str, int], bucket_mb: float | None) -> int:
    """Bytes of the largest of those buckets; one parameter may be more than a full one."""
    buckets = bucket_names(parameters, bucket_mb)
    return max(4 * sum(parameters[name] for name in names) for names in buckets)
