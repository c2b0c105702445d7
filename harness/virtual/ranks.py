"""A run in virtual time whose ranks run the programs of real processes, in one world."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from harness.config.device_costs import file_of
from harness.config.run import Run
from harness.engine.exchange.reduction import Reduction
from harness.engine.pipeline.device import Device
from harness.engine.programs import build_loop
from harness.engine.training.failure import in_a_line
from harness.engine.training.rank_context import Once, RankContext
from harness.engine.training.resume import Resumed
from harness.engine.training.train import Loop
from harness.engine.training.worker import checksum
from harness.records.run_directory import Events, Span, Table, read_events
from harness.virtual.circle import Circle, Ranks
from harness.virtual.clock import VirtualClock
from harness.virtual.costs import Costs
from harness.virtual.curve import Curve
from harness.virtual.exchange import ExchangeCache, Keep, VirtualExchange
from harness.virtual.executor import VirtualExecutor
from harness.virtual.groups import among
from harness.virtual.levels import TwoLevelSimulatedWorkers, between_nodes
from harness.virtual.network import Simulated
from harness.virtual.repeated import repeated
from harness.virtual.replica import Borrowed, Shared
from harness.virtual.sampler import Sampler
from harness.virtual.traffic import Traffic
from harness.virtual.wires import MessageChannels, VirtualPipelineGroup
from harness.virtual.workers import HomogeneousWorkers, SimulatedWorkers
from harness.virtual.world import World
from harness.workloads.data.base import DataSet

CARRIED = "carried"  # an event: bytes by link, where a checkpoint is due
Weight = Callable[[int], float]  # of a step: how many it stands for


class WorkerError(RuntimeError):
    """Failure of worker `rank` of `run`. Its cause is the error that the worker raised."""

    def __init__(self, run: Run, rank: int, cause: BaseException) -> None:
        super().__init__(f"rank {rank}: {in_a_line(cause, run)}")
        self.rank, self.__cause__ = rank, cause


class Ended(NamedTuple):
    """Report of a rank at its end."""

    end_s: float
    overruns: int
    drifted: bool
    steps: int
    aside_bytes: Sequence[int]


@dataclass
class VirtualRun:
    """The ranks of a run. `tell` is called after each step that all ranks have finished.

    `perform` runs a rank's loop and returns how many steps exceeded their pace. With a `curve`
    nothing is trained, and each recorded step only gets new times. `keep` receives every exchange.
    """

    run_dir: Path
    asked: Run
    costs: Costs
    begin: Resumed | None
    tell: Callable[[], None]
    weight: Weight = lambda step: 1.0
    perform: Callable[[Any], int] = methodcaller("run")
    curve: Curve | None = None
    keep: Keep | None = None
    ended: dict[int, Ended] = field(default_factory=dict, init=False)
    in_step: ClassVar[bool] = True  # whether ranks wait for each other at every step

    def __post_init__(self) -> None:
        run, costs = self.asked, self.costs
        assert isinstance(run.network, Simulated)
        parallel, workers = run.parallel, run.workers
        self._stages = parallel.ranks
        self._network = run.network
        self._alike = workers if self._network.alike else 1  # for how many a rank stands
        self._size = workers // self._alike
        on_cpu = parallel.servers or run.emulation.is_replay
        self._device = torch.device("cpu" if on_cpu else run.device_type(run.workers))
        self._data: Any = SharedDataSet(run.dataset)
        traffic = Traffic(costs)
        self._message = traffic.begin
        self._world, self._still = World(self._device, traffic), set[int]()
        self._wires = MessageChannels(self._world, traffic.begin, self._still)
        self._everyone, self._all = (Circle(self._world, self._size) for _ in range(2))
        stages, nodes = range(self._stages), range(workers)
        self._across = [Circle(self._world, self._size // self._stages) for _ in stages]
        self._costs = [costs]
        if parallel.levels > 1:
            self._costs = [between_nodes(costs)]
        if self._stages > 1:
            self._costs = [among(costs, nodes[stage :: self._stages], stage) for stage in stages]
        self._once, self._shared = Once(), Shared(self._all)
        links, self._events = Table(self.run_dir, "links.csv"), Events(self.run_dir)
        self._begins_s = self.begin.manifest.time_s if self.begin else 0.0
        every_s = self._network.sample_s
        before = _carried(self.run_dir, self.begin)
        self._sampler = Sampler(costs, links, self._events, every_s, self._begins_s, before)
        self._timeline = Timeline(self.run_dir, self._network.timeline_steps, self._size)
        self._ended_s: dict[int, float] = {}

    def run(self) -> list[Ended]:
        """Train to the end. Raise WorkerError if a rank fails."""
        world = self._world
        self._begin()
        try:
            world.run()
        finally:
            self._timeline.write()
            for name in ("steps", "evaluations"):
                if table := self._once.made.get(name):
                    table.close()
        if world.failure is not None:
            raise WorkerError(self.asked, *world.failure)
        return [self.ended[rank] for rank in sorted(self.ended)] * self._alike

    def _begin(self) -> None:
        for rank in range(self._size):
            self._world.begin(partial(self._be, rank), rank, f"rank {rank}")

    def _be(self, rank: int) -> None:
        torch.manual_seed(self.asked.seed)
        context, curve = self._context(rank), self.curve
        program = repeated(self.asked, context, curve) if curve else build_loop(self.asked, context)
        for loop in program.loops:
            loop.told, loop.alike = partial(self._told, loop), self._alike
        overruns = self.perform(program)
        drifted, end_s = self._drifted(rank, program), self._world.now_s
        self.ended[rank] = Ended(end_s, overruns, drifted, program.done, program.aside_bytes)
        program.close()

    def _drifted(self, rank: int, loop: Any) -> bool:
        stage = rank % self._stages
        sums = self._across[stage].meet(rank // self._stages, checksum(loop.gradients), list)
        return len(set(sums)) > 1 or not self._shared.same

    def _context(self, rank: int) -> RankContext:
        clock, stage = self._clock(), rank % self._stages
        workers = self._workers(rank // self._stages, self._across[stage], self._costs[stage])
        pipeline: dict[str, Any] = {}
        if self._stages > 1:
            everyone = among(self.costs, range(self._size), 0)
            pipeline["pipeline_group"] = VirtualPipelineGroup(
                self._wires, rank, stage, self._stages, self._device
            )
            pipeline["everyone"] = self._workers(rank, self._everyone, everyone)
        return RankContext(
            run_dir=self.run_dir,
            rank=rank,
            leads=rank == 0,
            clock=clock,
            workers=workers,
            device=self._device,
            together=Ranks(self._world, self._all, rank, self._still),
            data=self._data,
            begin=self.begin,
            exchange=self._exchange,
            replica=partial(Borrowed, rank=rank, shared=self._shared, clock=clock),
            executor=partial(VirtualExecutor, self._world),
            once=self._once,
            channel=partial(self._wires.channel, rank, device=self._device),
            **pipeline,
        )

    def _clock(self, kind: Any = VirtualClock, **more: Any) -> Any:
        run, of_run = self.asked, self._of_run()
        known = {"given": self._network.compression(file_of(run.activations()), *of_run)}
        return kind(
            world=self._world,
            per_compute_s=1 / of_run[1] if run.emulation.is_measured else 0.0,
            per_compress_s=self._network.seconds_per_second(*of_run),
            device=self._device,
            **(known | more),
        )

    def _of_run(self) -> tuple[int, float]:
        return self.asked.workers, self.asked.emulation.dilation

    def _workers(self, member: int, circle: Circle, costs: Costs) -> SimulatedWorkers:
        per_s = self._network.seconds_per_second(*self._of_run())
        kind: Callable[..., SimulatedWorkers] = SimulatedWorkers
        if self._alike > 1:
            kind = HomogeneousWorkers
        if self.asked.parallel.levels > 1:
            kind = partial(TwoLevelSimulatedWorkers, workers_per_node=self.asked.workers_per_node)
        size = circle.size * self._alike
        return kind(member, size, circle, costs, self._device, per_s)

    def _exchange(self, reduction: Reduction, names: Any, **given: Any) -> VirtualExchange:
        """Make a rank's exchange. Buckets know the names of their parameters themselves."""
        norms = reduction.controller.needs_norms  # of gradients, every time
        cache = ExchangeCache(0 if self._alike == 1 or norms else self._network.repeat)
        return VirtualExchange(reduction, cache=cache, keep=self.keep, **given)

    def _told(self, loop: Loop, end_s: float) -> float:
        """Record a rank's finished step, which ends at `end_s`, and return its corrected end.

        If the step stands for several, advance the rank's clock by their time. After the last rank,
        write timeline and links.csv, and call `tell`.
        """
        step, before_s = loop.seen.step, self._ended_s.get(id(loop), 0.0)
        if (weight := self.weight(step)) != 1:
            end_s += (weight - 1) * self._mean(loop, end_s - before_s)
            loop.clock.sleep_until(end_s)
        self._ended_s[id(loop)] = end_s
        is_last = self._timeline.add(step, loop.rank, self._drawn(loop))
        if is_last or not self.in_step:  # threads run in the order of their times
            self._sampler.up_to(end_s)
            every, done = self.asked.checkpoint_every, step + 1
            if every and done % every == 0:  # for a run that resumes in this directory
                self._events.append(CARRIED, end_s, step=done, bytes=self.costs.carried)
            self.tell()
        return end_s

    def _mean(self, loop: Loop, took_s: float) -> float:
        return self._all.meet(loop.rank, took_s, lambda each: sum(each) / len(each))  # type: ignore[no-any-return]

    def _drawn(self, loop: Loop) -> list[Span]:
        """Return the spans of the finished step, ordered by start."""
        step, pace = loop.seen.step, loop.pace
        exchange: Any = loop.exchange  # of virtual time
        if not isinstance(pace, Device):
            return exchange.spans()
        own = [Span(step, loop.rank, *each) for each in pace.spans]
        own += [each for each in exchange.spans() if each.kind not in ("forward", "backward")]
        return sorted(own, key=lambda span: (span.start_s, span.bucket))


def _carried(run_dir: Path, begin: Resumed | None) -> Mapping[str, float] | None:
    """Return bytes by link before the resumed point, or None for a run that starts now."""
    if begin is None or not begin.is_of(run_dir):
        return None
    told = (each for each in read_events(run_dir) if each["event"] == CARRIED)
    return {each["step"]: each["bytes"] for each in told}.get(begin.manifest.step, {})


class Timeline:
    """Record of the last `steps` steps of `ranks`, or of the one that stands for all."""

    def __init__(self, run_dir: Path, steps: int, ranks: int) -> None:
        self._run_dir, self._ranks = run_dir, ranks
        self._partly: dict[int, dict[int, list[Span]]] = {}  # by step and rank
        self._kept: deque[list[list[Span]]] = deque(maxlen=steps)

    def add(self, step: int, rank: int, spans: list[Span]) -> bool:
        """Add the spans of a rank in a step. Return True if it was the last rank."""
        told = self._partly.setdefault(step, {})
        told[rank] = spans
        if len(told) < self._ranks:
            return False
        self._kept.append([told[rank] for rank in sorted(told)])
        del self._partly[step]
        return True

    def write(self) -> None:
        """Write the recorded steps, ordered by step and rank, if there are any."""
        if self._kept:
            table = Table(self._run_dir, "timeline.csv")
            table.header()
            for step in self._kept:
                for spans in step:
                    table.append(*spans)
            table.close()


@dataclass
class SharedDataSet:
    """`data`, read once for all ranks."""

    data: DataSet

    def __post_init__(self) -> None:
        self.train, self.test = cache(self.data.train), cache(self.data.test)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)
