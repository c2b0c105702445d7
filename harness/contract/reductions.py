"""Runs a compressor on several workers, and draws gradients, for the laws of compressors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isqrt, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compressors.base import Bucket, Reduced
from compressors.buffers import Buffers
from compressors.checks import check_reduced
from harness.contract.threads import ThreadWorkers, together
from harness.engine.exchange.feedback import Feedback, NoFeedback


class BucketOutcome(NamedTuple):
    """Input and result of one worker's bucket; no memory is shared with the compressor."""

    grad: Tensor  # input of the compressor, with the residual added
    reduced: Reduced
    contributed_bytes: int


Shapes = dict[str, tuple[int, ...]]  # shapes of parameters by name


def shapes_of(n: int) -> Shapes:
    """Return shapes for `n` elements: a square matrix of about half, and a vector of the rest."""
    side = isqrt(n // 2)
    return {"matrix": (side, side), "vector": (n - side * side,)} if side else {"vector": (n,)}


@dataclass
class ThreadReplica:
    """A worker with its own compressor and error feedback.

    With `in_place` the mean overwrites the gradient if there is no feedback, as in a run. Then
    `BucketOutcome.reduced.unsent` has no meaning.
    """

    workers: ThreadWorkers
    compressor: Any
    feedback: Feedback = field(default_factory=NoFeedback)
    in_place: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)  # by name; empty if nothing is trained

    def reduce(
        self, grad: Tensor, density: float, step: int = 0, index: int = 0, of: Shapes | None = None
    ) -> BucketOutcome:
        """Reduce one bucket, `grad` [n], with shapes `of`; raise BadPart for a malformed result."""
        of = of or shapes_of(grad.numel())
        names, sizes = tuple(of), [prod(shape) for shape in of.values()]
        buffer = grad.clone()
        residual = self.feedback.recall(names, sizes, buffer)
        apart = residual is None and not self.in_place
        out = torch.full_like(grad, torch.nan) if apart else buffer
        weights = [self.weights[name] for name in names] if self.weights else []
        shapes = [torch.Size(shape) for shape in of.values()]
        bucket = Bucket(index, step, names, shapes, Buffers(buffer, residual, out), weights)
        before = grad.clone() if residual is None else residual + grad
        bytes_before = self.workers.contributed_bytes
        reduced = self.compressor.reduce(bucket, density, self.workers)
        check_reduced(self.compressor, reduced, len(grad), grad.device)
        mean, unsent = reduced.mean.clone(), reduced.unsent
        unsent = unsent if unsent is None else unsent.clone()
        self.feedback.keep(names, unsent)
        contributed_bytes = self.workers.contributed_bytes - bytes_before
        return BucketOutcome(before, Reduced(mean, unsent), contributed_bytes)


Make = Callable[[], Any]


def run(make: Make, grads: list[Tensor], density: float | list[float]) -> list[BucketOutcome]:
    """Reduce once with one worker per gradient, each with its own new compressor."""
    densities = density if isinstance(density, list) else [density] * len(grads)
    return together(
        len(grads),
        lambda workers: ThreadReplica(workers, make()).reduce(
            grads[workers.rank], densities[workers.rank], step=4
        ),
    )


def gradient(n: int, seed: int) -> Tensor:
    """Draw a heavy-tailed gradient [n]."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=source) * torch.randn(n, generator=source).exp()


def one_hot(n: int, seed: int) -> Tensor:
    """Return a gradient [n] with one nonzero element, at a position that depends on `seed`."""
    return torch.zeros(n).index_fill_(0, torch.tensor([7 * seed % n]), -3.0)


KINDS: dict[str, Callable[[int], Tensor]] = {
    "zeros": lambda seed: torch.zeros(1000),
    "one hot": partial(one_hot, 1000),
    "equal": lambda seed: torch.full((1000,), 0.25),
    "signs": lambda seed: gradient(1000, seed).sign(),
    "mostly zeros": lambda seed: gradient(30_000, seed) * (gradient(30_000, seed + 9) > 3),
    "ties": lambda seed: gradient(30_000, seed).mul(2).round(),
    "subnormal": lambda seed: gradient(1000, seed) * 1e-42,
    "large": lambda seed: gradient(1000, seed) * 1e15,
    "heavy-tailed": partial(gradient, 50_000),
}


def bits(x: Tensor) -> Tensor:
    """Return the bits of the float32 tensor `x` as int32, so that NaN equals itself."""
    return x.view(torch.int32)
