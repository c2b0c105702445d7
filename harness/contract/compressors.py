"""Laws of all compressors, the defaults of `compressors.base.Compressor`, tested on threads.

Tests of single compressors cover the bytes on the wire and further promises.
"""

from copy import deepcopy
from functools import partial
from itertools import product
from math import inf, nan, prod

import torch
from torch import Tensor

from compressors.base import Compressor
from harness.contract.laws import Law, Make, demand
from harness.contract.reductions import (
    KINDS,
    BucketOutcome,
    Shapes,
    ThreadReplica,
    bits,
    gradient,
    run,
)
from harness.contract.threads import ThreadWorkers, together
from harness.engine.exchange.feedback import Residual

SMALL = (1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 513, 1000, 4097)
SMALLEST_NORMAL = 2.0**-126  # smaller numbers may be rounded to zero
DENSITIES = (0.05, 0.1, 0.25, 0.5, 1.0)
STEPS = 20  # 1 / DENSITIES[0]: even a periodic sender has sent by then
SIZES = (1, 2, 3)  # workers
EACH_SIZE = tuple((size,) for size in SIZES)
PARAMETERS: Shapes = {"embed": (12, 40), "bias": (33,), "kernel": (8, 3, 3, 3), "scale": (1,)}


def check(compressor: Compressor, outcomes: list[BucketOutcome]) -> None:
    """Check the results of one bucket, an outcome per rank. Raise LawBroken if a check fails.

    The mean must be finite and have the same bits on all ranks. `unsent` must be finite. If
    `compressor.is_mean`, the mean must also equal the mean over ranks of grad - unsent. The allowed
    error is `compressor.rounding` times the largest gradient, times the ranks.
    """
    first = outcomes[0].reduced.mean
    for rank, (_, (mean, unsent), _) in enumerate(outcomes):
        same = torch.equal(bits(mean), bits(first))
        demand(same, f"the means of ranks 0 and {rank} differ")
        finite = unsent is None or bool(unsent.isfinite().all())
        demand(finite, f"unsent of rank {rank} is not finite")
    demand(bool(first.isfinite().all()), "the mean is not finite")
    if not compressor.is_mean:
        return
    contributed = [
        grad.double() if unsent is None else grad.double() - unsent.double()
        for grad, (_, unsent), _ in outcomes
    ]
    errors = (first.double() - torch.stack(contributed).mean(0)).abs()
    largest = max(float(one.grad.abs().max()) for one in outcomes)
    allowed = len(outcomes) * (compressor.rounding * largest + SMALLEST_NORMAL)
    where = int(errors.argmax())
    what = f"element {where} of {len(first)} differs by {float(errors[where]):.3g}"
    demand(float(errors[where]) <= allowed, f"{what} from the mean of grad - unsent")


def mean_of_contributions(make: Make, kind: str, size: int) -> None:
    """Check the mean of `size` workers for a `kind` of gradient; too large ones must be refused."""
    grads = [KINDS[kind](rank) for rank in range(size)]
    largest = max(float(grad.abs().max()) for grad in grads)
    if largest <= make().largest:
        check(make(), run(make, grads, 0.1))
        return
    try:
        run(make, grads, 0.1)
    except OverflowError:
        return
    demand(False, f"{largest:g}, above `largest`, was not refused with OverflowError")


def any_size(make: Make, size: int) -> None:
    """Check buckets of various small sizes at several densities, with one compressor."""
    new = make()

    def work(workers: ThreadWorkers) -> list[BucketOutcome]:
        return [
            ThreadReplica(workers, deepcopy(new)).reduce(gradient(n, workers.rank), density)
            for n in SMALL
            for density in (0.001, 0.3, 1.0)
        ]

    for of_all_workers in zip(*together(size, work), strict=True):
        check(new, list(of_all_workers))


def large_bucket(make: Make) -> None:
    """Check a bucket of three million elements."""
    check(make(), run(make, [gradient(3_000_001, rank) for rank in range(2)], 0.01))


def not_finite(make: Make, bad: float, share: float) -> None:
    """Raise LawBroken if a `share` of `bad` elements is neither refused nor visible in a mean."""
    n = 2000
    grads = [gradient(n, rank) for rank in range(2)]
    grads[0][: int(share * n)] = bad

    def work(workers: ThreadWorkers) -> Tensor:
        replica = ThreadReplica(workers, make(), Residual())
        for step in range(2 * STEPS):
            grad = grads[workers.rank] if step == 0 else gradient(n, step)
            mean = replica.reduce(grad, 0.5, step).reduced.mean
            if not mean.isfinite().all():
                break
        return mean

    try:
        means = together(2, work)
    except (ArithmeticError, ValueError) as refusal:
        demand("finite" in str(refusal), f"it was refused without a reason: {refusal}")
        return
    demand(torch.equal(bits(means[0]), bits(means[1])), "the workers' means differ")
    demand(not means[0].isfinite().all(), f"all means of {2 * STEPS} steps are finite")


def bytes_grow(make: Make) -> None:
    """Raise LawBroken if sent bytes shrink at a higher density, or grow unlike `has_level` says."""

    def work(workers: ThreadWorkers) -> list[int]:
        volumes = []
        for density in DENSITIES:
            replica = ThreadReplica(workers, make())
            grads = [gradient(4000, step * 2 + workers.rank) for step in range(STEPS)]
            outcomes = [replica.reduce(grad, density, step) for step, grad in enumerate(grads)]
            volumes.append(sum(outcome.contributed_bytes for outcome in outcomes))
        return volumes

    for volumes in together(2, work):
        seen = f"{STEPS} steps sent {volumes} bytes at densities {list(DENSITIES)}"
        demand(volumes == sorted(volumes), seen)
        demand(
            (volumes[0] < volumes[-1]) == make().has_level,
            f"{seen}; has_level is {make().has_level}",
        )


def densities_differ(make: Make) -> None:
    """Check a mean with different densities per worker, or equal ones if `uniform_density`."""
    densities = [0.1] * 3 if make().uniform_density else [0.01, 0.1, 0.3]
    check(make(), run(make, [gradient(5000, rank) for rank in range(3)], densities))


def repetition(make: Make) -> None:
    """Raise LawBroken if a repetition changes means or bytes, or draws global random numbers."""
    grads = [gradient(5000, rank) for rank in range(2)]
    before = torch.get_rng_state()
    first, second = (run(make, grads, 0.1) for _ in range(2))
    demand(torch.equal(torch.get_rng_state(), before), "torch's global random numbers were drawn")
    for one, other in zip(first, second, strict=True):
        demand(torch.equal(bits(one.reduced.mean), bits(other.reduced.mean)), "two means differ")
        sent = one.contributed_bytes, other.contributed_bytes
        demand(sent[0] == sent[1], f"{sent[0]} and {sent[1]} bytes were sent")


def in_place(make: Make) -> None:
    """Raise LawBroken unless a mean is the same in its own memory and over the gradient."""

    def work(workers: ThreadWorkers, in_place: bool) -> list[Tensor]:
        replica = ThreadReplica(workers, make(), in_place=in_place)
        grads = [gradient(5000, 2 * step + workers.rank) for step in range(3)]
        return [replica.reduce(grad, 0.1, step).reduced.mean for step, grad in enumerate(grads)]

    apart, within = (together(2, partial(work, in_place=place))[0] for place in (False, True))
    for step, (mean, other) in enumerate(zip(apart, within, strict=True)):
        demand(torch.equal(bits(mean), bits(other)), f"the means of step {step} differ")


def layout(step: int) -> list[list[str]]:
    """Return the parameters of each bucket; like DDP's, buckets are smaller from step 1 on."""
    return [list(PARAMETERS)] if step == 0 else [["scale", "kernel"], ["bias", "embed"]]


def descend(make: Make, workers: ThreadWorkers) -> tuple[Tensor, list[BucketOutcome]]:
    """Train for STEPS steps towards this worker's own target; return weights and outcomes."""
    replica = ThreadReplica(workers, make(), Residual())
    weights = {name: torch.zeros(prod(shape)) for name, shape in PARAMETERS.items()}
    target = {name: gradient(prod(shape), workers.rank) for name, shape in PARAMETERS.items()}
    outcomes = list[BucketOutcome]()
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


def replicas_stay_equal(make: Make, size: int) -> None:
    """Raise LawBroken unless `size` workers end with equal weights, though buckets change."""
    results = together(size, partial(descend, make))
    for rank, (weights, _) in enumerate(results):
        same = torch.equal(bits(weights), bits(results[0][0]))
        demand(same, f"weights of ranks 0 and {rank} differ after {STEPS} steps")
    compressor = make()
    for of_all_workers in zip(*(outcomes for _, outcomes in results), strict=True):
        check(compressor, list(of_all_workers))


LAWS = (
    Law("the mean is that of what the workers contributed", mean_of_contributions,
        tuple(product(KINDS, SIZES))),
    Law("a bucket may have any size", any_size, EACH_SIZE),
    Law("a bucket may be large", large_bucket),
    Law("a gradient that is not finite becomes visible or is refused", not_finite,
        tuple(product((nan, inf, -inf), (0.001, 0.5, 1.0)))),
    Law("the bytes grow with the density, unless has_level is False", bytes_grow),
    Law("densities may differ between workers, unless uniform_density", densities_differ),
    Law("a repetition is equal, and global random numbers are untouched", repetition),
    Law("the mean may take the place of the gradient", in_place),
    Law("replicas stay equal over steps, buckets and a new layout", replicas_stay_equal,
        EACH_SIZE),
)  # fmt: skip
