"""Buckets whose ways cross get the bits of buckets that are reduced one after the other."""

from typing import NamedTuple

import torch
import torch.distributed as dist

from controllers.fixed import Fixed
from harness.clock import Clock
from harness.config.lanes import Lanes
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from tests.compressors.reductions import build, variants
from tests.controllers.observations import seen
from tests.ranks import run_ranks

WORKERS, STEPS, DENSITY = 2, 5, 0.1
SHAPES = [{"a": (40, 30), "b": (30,)}, {"c": (7,)}, {"d": (64, 64)}, {"e": (20, 50), "f": (1,)}]
WAYS = {
    "one by one": Lanes(on_device=False, waits=True),
    "one ahead": Lanes(on_device=False),
    "all ahead": Lanes(),
}


class Bucket(NamedTuple):
    """The gradient of one step, then the mean."""

    names: tuple[str, ...]
    buffer: torch.Tensor
    views: list[torch.Tensor]


def buckets(step: int) -> list[Bucket]:
    noise = torch.Generator().manual_seed(100 * step + dist.get_rank())
    found = []
    for shapes in SHAPES:
        sizes = [torch.Size(shape).numel() for shape in shapes.values()]
        buffer = torch.randn(sum(sizes), generator=noise)
        parts = zip(buffer.split(sizes), shapes.values(), strict=True)
        found.append(Bucket(tuple(shapes), buffer, [part.view(shape) for part, shape in parts]))
    return found


def reduction_of(variant: str, workers: Workers) -> Reduction:
    compressor = build(variant)
    own = "error_feedback" in compressor.replaces
    feedback = NoFeedback() if own else Residual()
    return Reduction(compressor, Fixed(DENSITY), "local", feedback, workers)


def told(variant: str) -> list[float]:
    """The means, and the share of entries sent, of plain calls in a row."""
    workers = Workers(dist.group.WORLD)
    reduction, means = reduction_of(variant, workers), []
    for step in range(STEPS):
        reduction.open(None)
        for number, (names, buffer, views) in enumerate(buckets(step)):
            reduction.reduce_bucket(step, number, BucketBuffers(buffer, names, views))
            means += buffer.tolist()
        means.append(reduction.outcome()["achieved_density"])
    return [*means, float(workers.sent_bytes)]


def exchanged(variant: str, way: str) -> list[float]:
    """The same by an exchange."""
    workers, clock, means = Workers(dist.group.WORLD), Clock(), []
    clock.start()
    shares = {name: 0.1 for shapes in SHAPES for name in shapes}
    reduction = reduction_of(variant, workers)
    exchange = Exchange(reduction, workers, clock, {}, shares, lanes=WAYS[way])
    for step in range(STEPS):
        exchange.begin(None)
        handed = buckets(step)
        futures = [
            exchange.submit(BucketBuffers(buffer, names, views), last=names == handed[-1].names)
            for names, buffer, views in handed
        ]
        for future in futures:
            means += future.wait().tolist()
        means.append(exchange.finish().achieved_density)
        exchange.observe(seen(step))
    exchange.close()
    return [*means, float(workers.sent_bytes)]


def same(variant: str, one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit, but for products of matrices, which a thread of its own may round otherwise."""
    if variant.startswith("demo"):
        return torch.allclose(one, other, rtol=1e-5, atol=1e-5)
    return torch.equal(one, other)


def compared() -> list[str]:
    """Which variants get other bits, which way."""
    differ = []
    for variant in variants():
        expected = torch.tensor(told(variant), dtype=torch.float64)
        for way in WAYS:
            found = torch.tensor(exchanged(variant, way), dtype=torch.float64)
            if not same(variant, expected.nan_to_num(-1.0), found.nan_to_num(-1.0)):
                differ.append(f"{variant} {way}")
    return differ


def test_ways_that_cross_change_no_bit_of_any_compressor():
    assert run_ranks(WORKERS, compared) == [[]] * WORKERS
