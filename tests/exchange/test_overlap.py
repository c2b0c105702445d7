"""What overlaps what, over gloo: forward and the opening, backward and buckets, in every mode."""

import hashlib
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from compressors.base import Compressor, Reduced
from controllers.base import Controller, Observation
from harness.clock import Clock
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import Residual
from harness.engine.exchange.reduction import Reduction
from harness.engine.exchange.stats import Exchanged
from harness.engine.training.course import without_data
from harness.engine.training.gradients import Replayed
from harness.engine.training.step import StepExchange
from tests.compressors.reductions import build
from tests.exchange.test_exchange import small_model
from tests.launching import until
from tests.ranks import run_ranks

pytestmark = pytest.mark.timed
BUCKET_MB = 0.01  # several buckets in a small model
UNSETTLED = 1  # DDP lays out its buckets anew after the first step
MESSAGE_BYTES = 64 * 8  # of durations
AGREEMENT_BYTES = 8
ROUNDING_S = 1e-9


class Constant(Controller):
    """Half, whatever is seen; keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[Observation | None] = []

    def density(self, seen: Observation | None) -> float:
        self.seen.append(seen)
        return 0.5

    def state(self) -> dict[str, float]:
        return {}


@dataclass
class Slow(Compressor):
    """Dense, and late by 0.1 s on one worker."""

    rank: int
    uniform_density = True

    def reduce(self, bucket, density, workers):
        if workers.rank == self.rank:
            time.sleep(0.1)
        return Reduced(workers.all_reduce(bucket.grad), None)


class Trained(NamedTuple):
    """One rank's training."""

    weights: str  # digest
    took: list[Exchanged]
    buckets: list[int]  # of each exchange
    seen: list[Observation | None]  # by the controller


def exchange_of(model: nn.Module, compressor: Any, agree: str, **options: Any) -> Exchange:
    compressor = build(compressor) if isinstance(compressor, str) else compressor
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    clock = Clock()
    clock.start()
    workers = Workers(dist.new_group())
    reduction = Reduction(compressor, Constant(), agree, Residual(), workers)
    shares = {name: 1 / len(names) for name in names.values()}
    return Exchange(reduction, workers, clock, names, shares, **options)


def train(compressor, bucket_mb=BUCKET_MB, agree="local", release=None, **options) -> Trained:
    """Six steps of this rank."""
    net = small_model()
    exchange = exchange_of(net, compressor, agree, **options)
    ddp = DistributedDataParallel(net, bucket_cap_mb=bucket_mb)
    ddp.register_comm_hook(None, exchange.hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(dist.get_rank())
    one, took, buckets = StepExchange(exchange, exchange.clock), [], []
    for step in range(6):
        begin = exchange.clock.now()
        one.begin(begin, release(begin) if release else None)
        loss = ddp(torch.randn(8, 64, generator=source)).square().mean()
        exchange.begin_backward()
        loss.backward()
        took.append(one.end(step).took)
        buckets.append(exchange._stats.buckets)
        optimizer.step()
        optimizer.zero_grad()
    exchange.close()
    weights = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    return Trained(digest, took, buckets, exchange.reduction.controller.seen)


@pytest.mark.parametrize("compressor", ["dense", "topk"])
@pytest.mark.parametrize("bucket_mb", [BUCKET_MB, 0])
def test_when_buckets_are_sent_changes_no_bit(compressor, bucket_mb):
    during = run_ranks(2, train, compressor, bucket_mb)
    after = run_ranks(2, after_backward, compressor, bucket_mb)
    assert len({trained.weights for trained in during + after}) == 1


def after_backward(compressor, bucket_mb=BUCKET_MB, release=None) -> Trained:
    return train(compressor, bucket_mb, release=release, after_backward=True)


FORWARD_S, BACKWARD_S = 0.02, 0.1


def paced(begin):
    return lambda share: begin + FORWARD_S + share * BACKWARD_S


@pytest.mark.parametrize("release", [None, paced])
def test_after_backward_compression_alone_hides_anything(release):
    for trained in run_ranks(2, after_backward, "topk", BUCKET_MB, release):
        for took in trained.took:
            assert 0 < took.comm_s <= took.exposed_s + took.compress_s + ROUNDING_S
            assert took.overlap_window_s == 0


def test_after_backward_the_end_of_backward_is_where_it_was():
    for trained in run_ranks(2, after_backward, "dense", BUCKET_MB, paced):
        for took in trained.took:
            assert took.backward_s == pytest.approx(BACKWARD_S + took.late_s)


def test_during_backward_all_but_the_last_bucket_may_be_hidden():
    """Paced, so that the buckets leave one by one: on loopback each is gone before the next."""
    for trained in run_ranks(2, train, "dense", BUCKET_MB, "local", paced):
        settled = trained.took[UNSETTLED:]
        assert all(0 < took.overlap_window_s < took.backward_s for took in settled)
        assert all(0 < took.exposed_s <= took.comm_s for took in settled)
        assert any(took.exposed_s < took.comm_s for took in settled)


def test_with_no_room_in_a_bucket_every_tensor_is_one():
    tensors = len(list(small_model().parameters()))
    for trained in run_ranks(2, train, "dense", 0):
        assert set(trained.buckets[UNSETTLED:]) == {tensors}
    for trained in run_ranks(1, train, "dense", BUCKET_MB):
        assert 1 < trained.buckets[-1] < tensors


def replay(**options: Any) -> list[Exchanged]:
    net = small_model()
    exchange = exchange_of(net, "dense", "local", **options)
    parameters = dict(small_model().to("meta").named_parameters())
    replayed = Replayed(parameters, without_data(1, steps=3), exchange, BUCKET_MB, seed=0)
    took = []
    for step in range(3):
        exchange.begin(paced(exchange.clock.now()))
        replayed.compute(step)
        took.append(exchange.finish())
    exchange.close()
    return took


def test_a_replay_overlaps_as_training_does():
    for during in run_ranks(2, replay):
        assert all(took.overlap_window_s > 0 for took in during)
        assert any(took.exposed_s < took.comm_s for took in during)
    for after in run_ranks(2, replay_after_backward):
        assert all(took.overlap_window_s == 0 for took in after)
        assert all(took.comm_s <= took.exposed_s + took.compress_s + ROUNDING_S for took in after)


def replay_after_backward() -> list[Exchanged]:
    return replay(after_backward=True)


def opens_without_a_bucket() -> bool:
    exchange = exchange_of(small_model(), "dense", "min")
    exchange.begin(None)
    until(lambda: exchange.reduction.density == 0.5, "the density is chosen")
    exchange.close()
    return exchange.workers.sent_bytes == AGREEMENT_BYTES


def test_the_density_is_agreed_on_before_there_is_a_bucket():
    assert run_ranks(2, opens_without_a_bucket) == [True, True]


@pytest.mark.parametrize("slow", [0, 1])
def test_where_workers_agree_a_delay_is_without_waiting(slow):
    trained = run_ranks(2, train, Slow(slow), BUCKET_MB, "min")
    for before, seen in enumerate(zip(*(rank.seen[1:] for rank in trained), strict=True)):
        delays = {observation.comm_s for observation in seen}
        took = [rank.took[before] for rank in trained]
        assert len(delays) == 1
        assert delays.pop() < min(one.comm_s for one in took)
    waited = [sum(took.comm_s for took in rank.took) for rank in trained]
    assert waited[1 - slow] > waited[slow]


def test_the_messages_of_an_agreement_are_counted():
    for trained in run_ranks(2, train, "dense", BUCKET_MB, "mean"):
        first, *others = trained.took
        assert first.sent_bytes == first.dense_bytes + AGREEMENT_BYTES
        for took in others:
            assert took.sent_bytes == took.dense_bytes + AGREEMENT_BYTES + MESSAGE_BYTES


def test_a_worker_that_decides_alone_sees_its_own_time():
    for trained in run_ranks(2, train, "topk"):
        assert trained.seen[0] is None
        for seen, took in zip(trained.seen[1:], trained.took, strict=False):
            assert seen.comm_s == took.comm_s
