"""Laws of every compressor: each yaml of conf/compressor is tested by being there.

Bytes on the wire, and what a compressor promises beyond this, are in its own test file.
"""

from copy import deepcopy
from functools import partial
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.exchange.feedback import Residual
from tests.compressors.reductions import (
    KINDS,
    Outcome,
    Replica,
    Shapes,
    bits,
    build,
    gradient,
    run,
    variants,
)
from tests.compressors.threads import ThreadWorkers, together

SMALL = (1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 513, 1000, 4097)
SMALLEST_NORMAL = 2.0**-126  # what is below may be rounded to zero
DENSITIES = (0.05, 0.1, 0.25, 0.5, 1.0)
STEPS = 20  # of 1 / DENSITIES[0], so that what sends every so often has sent


@pytest.fixture(params=variants())
def variant(request: pytest.FixtureRequest) -> str:
    return request.param


def check(compressor: Any, outcomes: list[Outcome]) -> None:
    """One mean for all, to the bit; and it is that of what the workers say they contributed."""
    first = outcomes[0].reduced.mean
    for grad, (mean, unsent), _ in outcomes:
        assert mean.dtype == torch.float32 and mean.shape == grad.shape
        assert torch.equal(bits(mean), bits(first)), "the workers' means differ"
        assert unsent is None or unsent.isfinite().all()
    assert first.isfinite().all()
    if not compressor.is_mean:
        return
    contributed = [
        grad.double() if unsent is None else grad.double() - unsent.double()
        for grad, (_, unsent), _ in outcomes
    ]
    expected = torch.stack(contributed).mean(0)
    largest = max(float(one.grad.abs().max()) for one in outcomes)
    rounding = compressor.rounding
    error = len(outcomes) * (rounding * largest + SMALLEST_NORMAL)
    torch.testing.assert_close(first.double(), expected, rtol=0, atol=error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_mean_is_of_what_was_contributed(variant: str, kind: str, size: int) -> None:
    grads = [KINDS[kind](rank) for rank in range(size)]
    refused = build(variant).largest
    if max(float(grad.abs().max()) for grad in grads) > refused:
        with pytest.raises(OverflowError):
            run(variant, grads, 0.1)
        return
    check(build(variant), run(variant, grads, 0.1))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_bucket_may_have_any_size(variant: str, size: int) -> None:
    new = build(variant)

    def work(workers: ThreadWorkers) -> list[Outcome]:
        return [
            Replica(workers, deepcopy(new)).reduce(gradient(n, workers.rank), density)
            for n in SMALL
            for density in (0.001, 0.3, 1.0)
        ]

    for of_all_workers in zip(*together(size, work), strict=True):
        check(new, list(of_all_workers))


def test_a_bucket_may_be_large(variant: str) -> None:
    check(build(variant), run(variant, [gradient(3_000_001, rank) for rank in range(2)], 0.01))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("share", [0.001, 0.5, 1.0])
def test_a_gradient_that_is_not_finite_becomes_visible_or_is_refused(
    variant: str, bad: float, share: float
) -> None:
    """In the mean, within some steps; error feedback keeps what has not been sent."""
    n = 2000
    grads = [gradient(n, rank) for rank in range(2)]
    grads[0][: int(share * n)] = bad

    def work(workers: ThreadWorkers) -> Tensor:
        replica = Replica(workers, build(variant), Residual())
        for step in range(2 * STEPS):
            grad = grads[workers.rank] if step == 0 else gradient(n, step)
            mean = replica.reduce(grad, 0.5, step).reduced.mean
            if not mean.isfinite().all():
                break
        return mean

    try:
        means = together(2, work)
    except (ArithmeticError, ValueError) as refusal:
        assert "finite" in str(refusal)
        return
    assert torch.equal(bits(means[0]), bits(means[1]))
    assert not means[0].isfinite().all()


def test_bytes_grow_with_density_where_it_is_a_level(variant: str) -> None:
    def work(workers: ThreadWorkers) -> list[int]:
        volumes = []
        for density in DENSITIES:
            replica = Replica(workers, build(variant))
            grads = [gradient(4000, step * 2 + workers.rank) for step in range(STEPS)]
            outcomes = [replica.reduce(grad, density, step) for step, grad in enumerate(grads)]
            volumes.append(sum(outcome.contributed_bytes for outcome in outcomes))
        return volumes

    for volumes in together(2, work):
        assert volumes == sorted(volumes)
        assert (volumes[0] < volumes[-1]) == build(variant).has_level


def test_densities_may_differ_unless_declared_uniform(variant: str) -> None:
    densities = [0.1] * 3 if build(variant).uniform_density else [0.01, 0.1, 0.3]
    check(build(variant), run(variant, [gradient(5000, rank) for rank in range(3)], densities))


def test_a_repetition_is_equal_and_global_randomness_untouched(variant: str) -> None:
    grads = [gradient(5000, rank) for rank in range(2)]
    before = torch.get_rng_state()
    first, second = (run(variant, grads, 0.1) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(bits(one.reduced.mean), bits(other.reduced.mean))
        assert one.contributed_bytes == other.contributed_bytes


def test_the_mean_may_take_the_place_of_the_gradient(variant: str) -> None:
    """Where nothing is kept of it, nor of what is unsent."""

    def work(workers: ThreadWorkers, in_place: bool) -> list[Tensor]:
        replica = Replica(workers, build(variant), in_place=in_place)
        grads = [gradient(5000, 2 * step + workers.rank) for step in range(3)]
        return [replica.reduce(grad, 0.1, step).reduced.mean for step, grad in enumerate(grads)]

    apart, in_place = (
        together(2, partial(work, in_place=in_place))[0] for in_place in (False, True)
    )
    assert [bits(mean).tolist() for mean in in_place] == [bits(mean).tolist() for mean in apart]


PARAMETERS: Shapes = {"embed": (12, 40), "bias": (33,), "kernel": (8, 3, 3, 3), "scale": (1,)}


def layout(step: int) -> list[list[str]]:
    """Parameters by bucket: DDP starts with one bucket and changes to smaller ones."""
    return [list(PARAMETERS)] if step == 0 else [["scale", "kernel"], ["bias", "embed"]]


def descend(variant: str, workers: ThreadWorkers) -> tuple[Tensor, list[list[Outcome]]]:
    """Weights and outcomes of 20 steps towards a target of this worker's own."""
    replica = Replica(workers, build(variant), Residual())
    weights = {name: torch.zeros(prod(shape)) for name, shape in PARAMETERS.items()}
    target = {name: gradient(prod(shape), workers.rank) for name, shape in PARAMETERS.items()}
    outcomes = []
    for step in range(STEPS):
        for index, names in enumerate(layout(step)):
            grad = torch.cat([weights[name] - target[name] for name in names])
            of = {name: PARAMETERS[name] for name in names}
            outcome = replica.reduce(grad, 0.25, step, index, of)
            outcomes.append(outcome)
            sizes = [weights[name].numel() for name in names]
            for name, part in zip(names, outcome.reduced.mean.split(sizes), strict=True):
                weights[name] = weights[name] - 0.05 * part
    return torch.cat(list(weights.values())), outcomes


@pytest.mark.parametrize("size", [1, 2, 3])
def test_replicas_stay_equal_over_steps_buckets_and_a_new_layout(variant: str, size: int) -> None:
    results = together(size, lambda workers: descend(variant, workers))
    for weights, _ in results:
        assert torch.equal(bits(weights), bits(results[0][0]))
    compressor = build(variant)
    for of_all_workers in zip(*(outcomes for _, outcomes in results), strict=True):
        check(compressor, list(of_all_workers))
