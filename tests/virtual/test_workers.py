"""Collectives in virtual time give every compressor the bits and the bytes that gloo gives it."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist

from compressors.base import Bucket
from compressors.buffers import Buffers
from harness.config.lanes import Lanes
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.stats import LaneSpan
from harness.virtual.lanes import Layout, Work
from harness.virtual.noise import Noise
from harness.virtual.workers import SimulatedWorkers
from profiles.static import Static
from tests.compressors.reductions import build, gradient, shapes_of, variants
from tests.ranks import run_ranks
from tests.virtual.threads import costs_of, together

SIZE, N, STEPS = 3, 5003, 2
NAMES = variants()
Answer = dict[str, tuple[list[bytes], int, int]]


@dataclass
class Suspicious(SimulatedWorkers):
    """Remembers what it gave away, and what it was."""

    given: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def _gather(self, *asked: Any) -> Any:
        lengths, pieces = super()._gather(*asked)
        self.given += [(piece, piece.clone()) for piece in pieces]
        return lengths, pieces


def reductions(workers: Any) -> Answer:
    """Of every variant, at this rank: means, bytes sent, bytes received."""
    answers = {}
    for variant in NAMES:
        sent, received = workers.sent_bytes, workers.received_bytes
        compressor, means = build(variant), []
        for step in range(STEPS):
            grad = gradient(N, workers.rank)
            shapes = [torch.Size(shape) for shape in shapes_of(N).values()]
            weights = [torch.full(shape, 0.5) for shape in shapes_of(N).values()]
            bucket = Bucket(0, 4 + step, tuple(shapes_of(N)), shapes, Buffers(grad), weights)
            means.append(compressor.reduce(bucket, 0.1, workers).mean.numpy().tobytes())
        answers[variant] = (means, workers.sent_bytes - sent, workers.received_bytes - received)
        for piece, before in getattr(workers, "given", []):
            assert torch.equal(piece, before), f"{variant} writes into what it was given"
    return answers


def _over_gloo() -> Answer:
    return reductions(Workers(dist.new_group()))


@pytest.fixture(scope="module")
def answers() -> tuple[list[Answer], list[Answer]]:
    torch.set_num_threads(1)
    return together(SIZE, reductions, kind=Suspicious), run_ranks(SIZE, _over_gloo)


@pytest.mark.parametrize("variant", NAMES)
def test_every_compressor_gets_the_bits_and_bytes_of_real_ranks(answers, variant):
    ours, theirs = answers
    for rank in range(SIZE):
        assert ours[rank][variant][1:] == theirs[rank][variant][1:]
        assert ours[rank][variant][0] == theirs[rank][variant][0]


KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZES = (1, 2, 5, 31, 4099, 700_001)


def _values(kind: torch.dtype, n: int, rank: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(97 * rank + n)).to(kind)


def _sums(workers: Any) -> list[torch.Tensor]:
    return [
        workers.all_reduce(_values(kind, n, workers.rank), op="sum")
        for kind in KINDS
        for n in SIZES
    ] + [torch.tensor(workers.all_reduce_min([float(workers.rank), -1.0 * workers.rank]))]


def _sums_over_gloo() -> list[bytes]:
    sums = _sums(Workers(dist.new_group()))
    return [total.view(torch.uint8).numpy().tobytes() for total in sums]


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_sums_round_as_gloos_ring_does(size):
    theirs = run_ranks(size, _sums_over_gloo)
    for rank, sums in enumerate(together(size, _sums)):
        assert [total.view(torch.uint8).numpy().tobytes() for total in sums] == theirs[rank]


def test_one_who_calls_another_collective_is_named():
    def work(workers: Any) -> None:
        if workers.rank == 2:
            workers.all_gather(torch.ones(3))
        else:
            workers.all_reduce(torch.ones(3))

    with pytest.raises(ValueError, match="rank 0 called sum of .* rank 2 gather unlike of 1"):
        together(3, work)


def test_one_who_does_not_come_is_named():
    def work(workers: Any) -> None:
        if workers.rank != 1:
            workers.all_reduce(torch.ones(3))

    with pytest.raises(RuntimeError, match="wait for what will not come: rank 0, rank 2"):
        together(3, work)


def _told(work: Any, **changes: float) -> list[list[LaneSpan]]:
    """The collectives of three workers, who each do `work` from 5 s on."""

    def turn(workers: Any) -> list[Any]:
        work(workers)
        return workers.ops

    noise = changes.pop("noise", Noise())
    costs = costs_of(Static(rate_mbit=1e6), 3, noise=noise, **changes)
    costs.noise.begin(0)
    works = [Work(5.0, 0.0, [0.0], [], [ops]) for ops in together(3, turn, costs)]
    return [
        [one for one in worker.done if one.kind == "communicate"]
        for worker in Layout(works, costs, Lanes(waits=True), False).workers()
    ]


def test_pieces_of_unknown_length_wait_twice_for_ranks_to_wake():
    def work(workers: Any) -> None:
        workers.all_gather(torch.ones(3), equal=True)
        workers.all_gather(torch.ones(3))  # its lengths, and at once its pieces

    [did, *_] = _told(work, wake_s=0.01, cpu_oversubscription=4.0)
    took_s = [one.end_s - one.start_s for one in did]
    assert took_s == pytest.approx([2 * 0.01, 4 * 0.01 * 2, 2 * 0.01], abs=1e-6)


def test_each_part_ends_apart_and_the_next_begins_with_the_last():
    def work(workers: Any) -> None:
        workers.all_gather(torch.ones(3))

    did = _told(work, noise=Noise(latency=0.5), wake_s=0.01, cpu_oversubscription=4.0)
    lengths, pieces = zip(*did, strict=True)
    assert len({one.end_s for one in lengths}) == len({one.end_s for one in pieces}) == 3
    assert [one.start_s for one in pieces] == [one.end_s for one in lengths]
    took_s = max(one.end_s for one in pieces) - max(one.end_s for one in lengths)
    noise = Noise(latency=0.5)
    factors = [noise.latency_factor(messages) for messages in (4, 2)]
    assert took_s == pytest.approx(factors[1] * 2 * 0.01, abs=1e-6)
    assert max(one.end_s for one in lengths) == pytest.approx(5 + factors[0] * 4 * 0.02, abs=1e-6)


def test_lengths_that_are_told_before_an_all_to_all_are_of_its_call():
    def work(workers: Any) -> None:
        workers.begin([0.5, 0.25])
        workers.all_to_all([torch.ones(1 + peer) for peer in range(3)])
        workers.end()

    def turn(workers: Any) -> list[Any]:
        work(workers)
        return workers.ops

    for ops in together(3, turn):
        assert [op.compress_s for op in ops] == [0.5, 0.0, 0.25]
        assert [collective for collective, *_ in ops[1].call] == ["all_to_all", "all_to_all"]
