"""The same compressors over real collectives: equal bits at every rank, as between threads."""

import torch
import torch.distributed as dist

from compressors.base import Bucket
from compressors.buffers import Buffers
from harness.engine.exchange.collectives import Workers
from tests.compressors.reductions import build, gradient, run, shapes_of, variants
from tests.ranks import run_ranks

SIZE, N, STEPS = 3, 5003, 2


def reductions() -> dict[str, list[bytes]]:
    """The means of every variant at this rank, and what was left unsent, as bytes."""
    workers = Workers(dist.new_group())
    answers = {}
    for variant in variants():
        compressor, means = build(variant), []
        for step in range(STEPS):
            grad = gradient(N, workers.rank)
            shapes = [torch.Size(shape) for shape in shapes_of(N).values()]
            bucket = Bucket(0, 4 + step, tuple(shapes_of(N)), shapes, Buffers(grad))
            means.append(compressor.reduce(bucket, 0.1, workers).mean.numpy().tobytes())
        answers[variant] = means
    return answers


def test_ranks_agree_to_the_bit_and_with_threads() -> None:
    ranks = run_ranks(SIZE, reductions)
    for variant in variants():
        assert all(answers[variant] == ranks[0][variant] for answers in ranks), variant
        found = torch.frombuffer(bytearray(ranks[0][variant][0]), dtype=torch.float32)
        expected = run(variant, [gradient(N, rank) for rank in range(SIZE)], 0.1)[0].reduced.mean
        rounding = 2 * SIZE * build(variant).rounding
        largest = float(gradient(N, 0).abs().max())
        torch.testing.assert_close(found, expected, rtol=0, atol=rounding * largest)
