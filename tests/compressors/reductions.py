"""The compressors of conf/compressor at work on several workers, and gradients to try them on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isqrt, prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.base import Bucket, Reduced
from compressors.buffers import Buffers
from harness.engine.exchange.feedback import Feedback, NoFeedback
from tests.compressors.threads import ThreadWorkers, together

CHOICES = Path("conf/compressor")


def variants() -> list[str]:
    """Every yaml of the group, and once more with each of its switches turned: `name key=value`."""
    found = []
    for path in sorted(CHOICES.glob("*.yaml")):
        found.append(path.stem)
        for key, value in OmegaConf.to_container(OmegaConf.load(path), resolve=False).items():
            if isinstance(value, bool):
                found.append(f"{path.stem} {key}={not value}")
    return found


def build(variant: str, **changes: Any) -> Any:
    """The compressor of a variant, seed 3, with `changes` to its fields."""
    name, *switched = variant.split()
    part = OmegaConf.merge(
        OmegaConf.load(CHOICES / f"{name}.yaml"), OmegaConf.from_dotlist(switched), changes
    )
    return instantiate(OmegaConf.create({"seed": 3, "part": part}).part)


class Outcome(NamedTuple):
    """What one worker had and got; nothing is shared with the compressor."""

    grad: Tensor  # before, residual added
    reduced: Reduced
    contributed_bytes: int


Shapes = dict[str, tuple[int, ...]]  # of parameters, by name


def shapes_of(n: int) -> Shapes:
    """A square matrix of about n / 2 elements, and the rest as a vector."""
    side = isqrt(n // 2)
    return {"matrix": (side, side), "vector": (n - side * side,)} if side else {"vector": (n,)}


@dataclass
class Replica:
    """One worker: its compressor and its error feedback.

    `in_place`: the mean is written over the gradient where there is no feedback, as in a run; then
    `Outcome.reduced.unsent` means nothing.
    """

    workers: ThreadWorkers
    compressor: Any
    feedback: Feedback = field(default_factory=NoFeedback)
    in_place: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)  # by name; empty: nothing is trained

    def reduce(
        self, grad: Tensor, density: float, step: int = 0, index: int = 0, of: Shapes | None = None
    ) -> Outcome:
        """One bucket, [n], of parameters with shapes `of`."""
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
        mean, unsent = self.compressor.reduce(bucket, density, self.workers)
        mean, unsent = mean.clone(), unsent if unsent is None else unsent.clone()
        self.feedback.keep(names, unsent)
        return Outcome(before, Reduced(mean, unsent), self.workers.contributed_bytes - bytes_before)


Make = Callable[[], Any]


def run(make: str | Make, grads: list[Tensor], density: float | list[float]) -> list[Outcome]:
    """One reduction by as many workers as there are `grads`, each with its own new compressor."""
    new = partial(build, make) if isinstance(make, str) else make
    densities = density if isinstance(density, list) else [density] * len(grads)
    return together(
        len(grads),
        lambda workers: Replica(workers, new()).reduce(
            grads[workers.rank], densities[workers.rank], step=4
        ),
    )


def gradient(n: int, seed: int) -> Tensor:
    """Heavy-tailed, [n]."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=source) * torch.randn(n, generator=source).exp()


def one_hot(n: int, seed: int) -> Tensor:
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
    return x.view(torch.int32)
