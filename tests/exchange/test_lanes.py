"""The lanes of a real exchange: laid out as in virtual time, in one order on all ranks."""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pytest
import torch
import torch.distributed as dist

from compressors.base import Compressor, Reduced
from controllers.base import Controller
from controllers.fixed import Fixed
from harness.clock import Clock
from harness.config.lanes import Lanes
from harness.engine.exchange.bucket_lanes import Exchange, ExchangeError
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import NoFeedback
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.exchange.stats import LaneSpan
from harness.virtual.lanes import LaneOp, Layout, Work
from tests.ranks import run_ranks

LANES = [
    Lanes(on_device, waits, interference)
    for on_device in (True, False)
    for waits in (True, False)
    for interference in (1.0, 1.5)
]


class Instant(threading.local):
    """A clock of each thread's own, on which only waiting takes time."""

    dilation = 1.0

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep_until(self, at: float) -> None:
        self._now = max(self._now, at)

    def monotonic(self, at: float) -> float:
        return at


@dataclass
class Told:
    """Workers whose collectives take as many seconds as they are given."""

    processor_waits = None
    clock: Instant
    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sent_bytes: int = 0
    received_bytes: int = 0
    inside_bytes: int = 0
    shards: int = 1
    intervals: list[tuple[float, float]] = field(default_factory=list)

    def all_reduce(self, tensor: torch.Tensor, op: str = "mean") -> torch.Tensor:
        start = self.clock.now()
        self.clock.sleep_until(start + float(tensor))
        self.intervals.append((start, self.clock.now()))
        return tensor


@dataclass
class Program(Compressor):
    """Of every bucket, how long its collectives take; a step's compression is in `phases`."""

    lengths: list[list[float]]
    phases: tuple[float, ...]
    uniform_density = True

    def reduce(self, bucket, density, workers):
        for length in self.lengths[bucket.index]:
            workers.all_reduce(torch.tensor(length, dtype=torch.float64))
        return Reduced(bucket.grad, None)


@dataclass
class Opens(Controller):
    """A controller that needs collectives of these lengths to choose."""

    workers: Any
    lengths: tuple[float, ...]

    def density(self, seen):
        for length in self.lengths:
            self.workers.all_reduce(torch.tensor(length, dtype=torch.float64))
        return 1.0

    def state(self):
        return {}


@dataclass
class Case:
    """A random step."""

    source: random.Random

    def __post_init__(self) -> None:
        draw, count = self.source.random, self.source.randrange(1, 7)
        self.elements = [self.source.randrange(1, 9) for _ in range(count)]
        self.lengths = [[draw() for _ in range(self.source.randrange(4))] for _ in range(count)]
        self.phases = tuple(draw() for _ in range(self.source.randrange(1, 5)))
        self.element_s = self.source.choice([0.0, draw() / 4])
        self.begin_s, self.forward_s, self.backward_s = 10 * draw(), draw(), 4 * draw()
        self.opening = tuple(draw() for _ in range(self.source.randrange(3)))
        weights = [draw() for _ in range(count)]
        self.shares = [weight / sum(weights) for weight in weights]

    def work(self) -> Work:
        """What `Layout` is told of it."""
        buckets = []
        for elements, lengths in zip(self.elements, self.lengths, strict=True):
            told = [elements * self.element_s * each / sum(self.phases) for each in self.phases]
            acts = []
            for length in lengths:
                acts += [
                    LaneOp(told.pop(0) if told else 0.0),
                    LaneOp(0.0, (("all_reduce", length),)),
                ]
            buckets.append([*acts, LaneOp(sum(told))])
        opening = [LaneOp(0.0, (("all_reduce", length),)) for length in self.opening]
        parts_s = [share * self.backward_s for share in self.shares]
        return Work(self.begin_s, self.forward_s, parts_s, opening, buckets)

    def charge(self, laid: BucketBuffers, density: float, step: int) -> float:
        return self.element_s * laid.buffer.numel()

    def exchanged(self, lanes: Lanes, after: bool) -> tuple[list[LaneSpan], float, Any]:
        """What the threads of a real exchange did, and when the training thread went on."""
        clock = Instant()
        workers: Any = Told(clock)
        controller = Opens(workers, self.opening)
        program = Program(self.lengths, self.phases)
        reduction = Reduction(program, controller, "local", NoFeedback(), workers)
        shares = {str(number): share for number, share in enumerate(self.shares)}
        exchange = Exchange(reduction, workers, clock, {}, shares, after, lanes, charge=self.charge)
        clock.sleep_until(self.begin_s)
        exchange.begin(lambda share: self.begin_s + self.forward_s + share * self.backward_s)
        handed = [torch.zeros(elements) for elements in self.elements]
        futures = [
            exchange.submit(
                BucketBuffers(buffer, (str(number),), [buffer]), last=buffer is handed[-1]
            )
            for number, buffer in enumerate(handed)
        ]
        for future in futures:
            future.wait()
        took, clocks = exchange.finish(), exchange._stats.clocks
        exchange.close()
        return clocks.done, clocks.end_s, took


class Costs:
    """Of collectives that take as long as they are told."""

    def all_reduce(self, start_s: float, length_s: float) -> float:
        return start_s + length_s


def by_lane(done: list[LaneSpan]) -> Iterator[tuple[Any, ...]]:
    """In the order of their times, without those that took none; times rounded."""
    for one in sorted(done, key=lambda one: (one.kind, one.start_s, one.end_s)):
        if one.end_s - one.start_s > 1e-9:
            yield one.kind, one.bucket, round(one.start_s, 9), round(one.end_s, 9)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("after", [False, True])
def test_a_paced_exchange_has_the_schedule_of_virtual_time(lanes, after):
    source = random.Random(f"{lanes}{after}")
    for _ in range(12):
        case = Case(source)
        done, end_s, took = case.exchanged(lanes, after)
        [expected] = Layout([case.work()], Costs(), lanes, after).workers()
        assert list(by_lane(done)) == list(by_lane(expected.done))
        assert end_s == pytest.approx(expected.end_s)
        assert took.exposed_s == pytest.approx(expected.totals().exposed_s, abs=1e-9)
        assert took.compress_s == pytest.approx(expected.totals().compress_s)
        assert took.late_s == 0
        assert took.backward_s == pytest.approx(case.backward_s)
        parts_s = list(accumulate(case.shares))
        overlap_window_s = 0.0 if after else case.backward_s * (parts_s[-1] - parts_s[0])
        assert took.overlap_window_s == pytest.approx(overlap_window_s, abs=1e-9)


class Noting(Workers):
    """Notes what is on the wire, and lets others wait for it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.order: list[float] = []
        self.performed = [threading.Event() for _ in range(BUCKETS)]

    def all_reduce(self, tensor: torch.Tensor, op: str = "mean") -> torch.Tensor:
        mine = float(tensor)
        theirs = super().all_reduce(tensor, op)
        assert float(theirs) == mine  # else another collective met this one
        self.order.append(mine)
        self.performed[int(mine)].set()
        return theirs


@dataclass
class Rounds(Compressor):
    """Two collectives a bucket; rank 0 waits for an event between, rank 1 before."""

    all_handed: threading.Event
    uniform_density = True

    def reduce(self, bucket, density, workers):
        for part in (0.0, 0.5):
            workers.all_reduce(torch.tensor(bucket.index + part))
            if workers.rank == 0:
                assert self.all_handed.wait(WAIT_S)
        return Reduced(bucket.grad, None)


BUCKETS, WAIT_S = 4, 30.0


def order_on_the_wire(lanes: Lanes) -> list[float]:
    """Rank 0 comes back to no bucket before all are handed over; rank 1 hands over late."""
    clock, all_handed = Clock(), threading.Event()
    clock.start()
    workers = Noting(dist.new_group())
    reduction = Reduction(Rounds(all_handed), Fixed(1.0), "local", NoFeedback(), workers)
    exchange = Exchange(reduction, workers, clock, {}, {"a": 1 / BUCKETS}, lanes=lanes)
    exchange.begin(None)
    futures = []
    for number in range(BUCKETS):
        if number and workers.rank == 1:
            assert workers.performed[number - 1].wait(WAIT_S)
        buffer = torch.ones(1)
        laid = BucketBuffers(buffer, ("a",), [buffer])
        futures.append(exchange.submit(laid, last=number == BUCKETS - 1))
    all_handed.set()
    for future in futures:
        future.wait()
    exchange.close()
    return workers.order


@pytest.mark.parametrize(("lanes", "expected"), [
    (Lanes(waits=True), [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]),
    (Lanes(on_device=False), [0, 1, 0.5, 2, 1.5, 3, 2.5, 3.5]),
    (Lanes(), [0, 1, 2, 3, 0.5, 1.5, 2.5, 3.5]),
])  # fmt: skip
def test_the_order_on_the_wire_is_that_of_the_program_whoever_is_late(lanes, expected):
    assert run_ranks(2, order_on_the_wire, lanes) == [expected, expected]


@dataclass
class Lost(Told):
    """The network fails at the collective of this number."""

    fails_at: int = 0

    def all_reduce(self, tensor: torch.Tensor, op: str = "mean") -> torch.Tensor:
        if len(self.begun) == self.fails_at:
            raise RuntimeError("Connection closed by peer")
        self.begun.append(float(tensor))
        return super().all_reduce(tensor, op)

    def __post_init__(self) -> None:
        self.begun: list[float] = []


@pytest.mark.parametrize("lanes", [Lanes(), Lanes(on_device=False), Lanes(waits=True)])
@pytest.mark.parametrize("fails_at", range(2 * BUCKETS))
def test_what_fails_on_the_wire_fails_whoever_waits_and_all_threads_end(lanes, fails_at):
    before = threading.active_count()
    clock = Instant()
    workers: Any = Lost(clock, fails_at=fails_at)
    reduction = Reduction(
        Program([[1.0, 1.0]] * BUCKETS, (1.0,)), Fixed(1.0), "local", NoFeedback(), workers
    )
    exchange = Exchange(reduction, workers, clock, {}, {"a": 1 / BUCKETS}, lanes=lanes)
    exchange.begin(None)
    futures = []
    for number in range(BUCKETS):
        buffer = torch.ones(1)
        laid = BucketBuffers(buffer, ("a",), [buffer])
        futures.append(exchange.submit(laid, last=number == BUCKETS - 1))
    with pytest.raises(RuntimeError):  # the last of all; what torch makes of its error
        futures[-1].wait()
    failed = [future for future in futures if future.done()]
    assert len(failed) == BUCKETS
    assert len(workers.begun) == fails_at  # nothing more is tried
    for step in (exchange.finish, lambda: exchange.begin(None)):
        with pytest.raises(ExchangeError, match="Connection closed by peer"):
            step()
    exchange.close()
    assert threading.active_count() == before
