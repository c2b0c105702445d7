"""Laws of every compressor: each yaml of conf/compressor is tested by being there."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.base import Bucket, Reduced
from tests.compressors.threads import ThreadWorkers, together

CHOICES = Path("conf/compressor")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    path.stem: (path.stem, {}) for path in sorted(CHOICES.glob("*.yaml"))
} | {
    "randomk, own": ("randomk", {"shared": False}),
    "topk, int64": ("topk", {"index_dtype": "int64"}),
}
SUBNORMAL = 2.0**-149  # the smallest float32, lost at every addition
PROMISED = {  # bytes to all_reduce and to all_gather; entries: those that were sent
    "dense": lambda n, k, entries: (4 * n, 0),
    "topk": lambda n, k, entries: (0, 8 * k),
    "topk, int64": lambda n, k, entries: (0, 12 * k),
    "sampled_topk": lambda n, k, entries: (0, 8 * entries),
    "randomk": lambda n, k, entries: (4 * k, 0),
    "randomk, own": lambda n, k, entries: (0, 8 * k),
}
DENSITIES = (0.001, 0.01, 0.1, 0.5, 1.0)


class Outcome(NamedTuple):
    """What one worker had and got."""

    grad: Tensor  # before
    reduced: Reduced
    reduced_bytes: int
    gathered_bytes: int


def build(variant: str) -> Any:
    name, changes = VARIANTS[variant]
    config = OmegaConf.merge({"seed": 3}, {"part": OmegaConf.load(CHOICES / f"{name}.yaml")})
    return instantiate(OmegaConf.merge(config, {"part": changes}).part)


def run(variant: str, grads: list[Tensor], densities: list[float], step: int = 0) -> list[Outcome]:
    """One reduction by as many workers as there are `grads`, each with its own compressor."""

    def work(workers: ThreadWorkers) -> Outcome:
        grad = grads[workers.rank].clone()
        bucket = Bucket(0, step, grad, [grad], ("all",))
        reduced = build(variant).reduce(bucket, densities[workers.rank], workers)
        return Outcome(grads[workers.rank], reduced, workers.reduced_bytes, workers.gathered_bytes)

    return together(len(grads), work)


def gradient(n: int, seed: int) -> Tensor:
    """Heavy-tailed, [n]."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=source) * torch.randn(n, generator=source).exp()


def sent(outcome: Outcome) -> Tensor:
    """What the worker contributed, [n]; it and `unsent` must make up the gradient, exactly."""
    unsent = outcome.reduced.unsent
    if unsent is None:
        return outcome.grad
    missing = unsent.view(torch.int32) != outcome.grad.view(torch.int32)
    assert torch.all(unsent[missing] == 0)
    return torch.where(missing, outcome.grad, 0)


def bits(x: Tensor) -> Tensor:
    return x.view(torch.int32)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return request.param


SHAPES = {
    "one element": lambda seed: torch.tensor([0.5 + seed]),
    "zeros": lambda seed: torch.zeros(1000),
    "equal": lambda seed: torch.full((1000,), 0.25),
    "signs": lambda seed: torch.randn(1000, generator=torch.Generator().manual_seed(seed)).sign(),
    "mostly zeros": lambda seed: gradient(30000, seed) * (gradient(30000, seed + 9) > 3),
    "ties": lambda seed: gradient(30000, seed).mul(2).round(),
    "tiny": lambda seed: gradient(1000, seed) * 1e-42,
    "heavy-tailed": partial(gradient, 50_000),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 3])
def test_mean_is_of_what_was_sent_and_nothing_is_lost(variant: str, shape: str, size: int) -> None:
    grads = [SHAPES[shape](rank) for rank in range(size)]
    outcomes = run(variant, grads, [0.1] * size)
    expected = torch.stack([sent(outcome).double() for outcome in outcomes]).mean(0)
    error = 0.0 if size == 1 else 1e-6 * float(expected.abs().max()) + size * SUBNORMAL
    for outcome in outcomes:
        torch.testing.assert_close(outcome.reduced.mean.double(), expected, rtol=0, atol=error)
        assert torch.equal(bits(outcome.reduced.mean), bits(outcomes[0].reduced.mean))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("share", [0.001, 0.5, 1.0])
def test_a_gradient_that_is_not_finite_ends_and_stays_visible(
    variant: str, bad: float, share: float
) -> None:
    grad = gradient(5000, 0)
    grad[: max(1, int(share * 5000))] = bad
    outcomes = run(variant, [grad, gradient(5000, 1)], [0.1, 0.1])
    assert torch.equal(bits(outcomes[0].reduced.mean), bits(outcomes[1].reduced.mean))
    if share < 1 and "randomk" in variant:
        return  # blind to values by design
    assert not outcomes[1].reduced.mean.isfinite().all()


def test_bytes_grow_with_density(variant: str) -> None:
    grads = [gradient(20_000, rank) for rank in range(2)]
    outcomes = [run(variant, grads, [density] * 2) for density in DENSITIES]
    volumes = [outcome[0].reduced_bytes + outcome[0].gathered_bytes for outcome in outcomes]
    assert volumes == sorted(volumes)


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("n", [7, 20_000])
def test_bytes_are_those_promised(variant: str, density: float, n: int) -> None:
    outcome = run(variant, [gradient(n, rank) for rank in range(2)], [density] * 2)[0]
    k = max(1, int(density * n))
    entries = max(1, int(sent(outcome).count_nonzero()))
    promised = PROMISED[variant](n, k, entries)
    assert (outcome.reduced_bytes, outcome.gathered_bytes) == promised
    if variant == "sampled_topk":
        assert min(k, 0.7 * k) <= entries <= 1.3 * k


def test_densities_may_differ_unless_declared_uniform(variant: str) -> None:
    densities = [0.1] * 3 if build(variant).uniform_density else [0.01, 0.1, 0.3]
    grads = [gradient(5000, rank) for rank in range(3)]
    outcomes = run(variant, grads, densities)
    for outcome in outcomes:
        assert torch.equal(bits(outcome.reduced.mean), bits(outcomes[0].reduced.mean))


def test_a_repetition_is_equal_and_global_randomness_untouched(variant: str) -> None:
    grads = [gradient(5000, rank) for rank in range(2)]
    before = torch.get_rng_state()
    first, second = (run(variant, grads, [0.1] * 2, step=4) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(bits(one.reduced.mean), bits(other.reduced.mean))
