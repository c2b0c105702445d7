"""Build a trainer or the server from the settings of a run, or from its checkpoint."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from harness.config.run import Run
from harness.config.server import Server
from harness.engine.exchange.bucket_lanes import Charge
from harness.engine.exchange.reduction import Reduction
from harness.engine.parameter_server.captured import Captured, alone
from harness.engine.parameter_server.exchange import Pushing, Trainers
from harness.engine.parameter_server.gradient import Drain, Gradient
from harness.engine.parameter_server.parameter_store import ParameterStore
from harness.engine.parameter_server.server_loop import ServerLoop
from harness.engine.parameter_server.server_model import FlatParameters, ServerModel, set_buffers
from harness.engine.parameter_server.trainer import Served, Trainer
from harness.engine.training.build import build_gradients, build_model, rest_of, whole_model_loop
from harness.engine.training.course import Course, course_of, tested
from harness.engine.training.gradients import Replayed, Trained
from harness.engine.training.rank_context import Once, RankContext
from harness.engine.training.replica import Gathered, Replica
from harness.records.run_directory import Events, Table


def build_trainer(run: Run, layout: Server, context: RankContext) -> Trainer:
    """Build the trainer of a rank, ready to join the server."""
    shared = Once()
    threads = [
        _thread(run, context._replace(shared=shared, thread=number))
        for number in range(layout.threads)
    ]
    return Trainer(threads, context.transport, run.timeouts.start_s)


def _thread(run: Run, context: RankContext) -> Served:
    layout, workers, served = run.server, run.workers, Served(context.clock)
    captured: Any = Captured(context.rank, workers if layout.is_sync else 1, alone)
    seed = (run.seed * workers + context.rank) * layout.threads + context.thread
    drain = Drain(layout.drain_period, seed)

    def pushing(reduction: Reduction, charge: Charge | None, **rest: Any) -> Pushing:
        return Pushing(
            gradient=Gradient(reduction, captured, drain),
            workers=Trainers(workers),
            clock=context.clock,
            rank=context.rank,
            thread=context.thread,
            events=Events(context.run_dir),
            charge=charge,
        )

    at_server: Any = {"workers": captured, "exchange": pushing, "replica": PulledReplica}
    loop: Any = whole_model_loop(
        run, run.parallel, context._replace(leads=False, together=served, **at_server)
    )
    served.loop, served.exchange, served.save = loop, loop.exchange, loop.rest.save
    loop.pull, loop.rest = served.exchange.pull, served.ends
    if run.emulation.is_replay:
        sizes = [parameter.numel() for parameter in loop.gradients.parameters.values()]
        served.exchange.lay(torch.empty(sum(sizes)))
    return served


def server_loop_of(run: Run, context: RankContext) -> ServerLoop:
    """Build the server, ready to accept trainers."""
    layout, transport, workers = run.server, context.transport, run.workers
    context = context._replace(rank=workers, replica=lambda model, *rest: Replica(model))
    clock: Any = context.clock
    model = build_model(run, context)
    course = _course(run, context, 1 if layout.is_sync else workers)
    gradients: Any = Replayed({}, course, None, 0.0, 0)
    learns = not run.emulation.is_replay
    if learns:
        gradients = build_gradients(run, context, model, course, None, ServerGradients)
    else:
        model = _zero(model)
    served = ServerModel(
        model=model, update=gradients.update, compressor=run.compressor(), bucket_mb=run.bucket_mb
    )
    events, table = Events(context.run_dir), Table(context.run_dir, "pushes.csv")
    table.header()
    store = ParameterStore(
        model=served,
        layout=layout,
        workers=workers,
        steps=course.steps,
        clock=clock,
        table=table,
        changed=transport.condition(),
    )
    server_loop = gradients.server_loop = ServerLoop(store, transport)
    context = context._replace(together=server_loop)
    stateful = {"compressor": served.compressor} if learns else {}
    server_loop.rest = rest_of(run, context, gradients, stateful)
    store.is_due = server_loop.rest.is_due
    if layout.drain_period is not None:
        layers, steps = len(list(model.parameters())), store.steps
        expected = layers * workers * steps / layout.drain_period
        events.append("drains_expected", expected=expected, period=layout.drain_period)
        print(f"{expected:g} drains expected: {layers} layers, {workers} x {steps} steps")
    return server_loop


def _course(run: Run, context: RankContext, updates: int) -> Course:
    """Return the server's course: a step is `updates` updates; it evaluates all test data."""
    course = course_of(run, context, 0, run.workers)
    return course._replace(
        test_set=tested(context.data, 0, 1),
        learning_rate=lambda version: course.learning_rate(version // updates),
    )


def _zero(model: nn.Module) -> nn.Module:
    """Allocate the model's memory on the CPU, with every parameter zero; return the model."""
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.zero_()
    return model


class PulledReplica(Gathered):
    """A trainer's replica of the model, whose weights are pulled; only the server updates them."""

    def __post_init__(self) -> None:
        self.buckets = FlatParameters(self.model, self.bucket_mb)
        self.exchange.lay(self.buckets.weights, self.buckets.buckets)

    def update(self, step: Any) -> None:
        self.model.zero_grad()


@dataclass(kw_only=True)
class ServerGradients(Trained):
    """The server's gradients: it has no batches, and takes batch statistics from a trainer."""

    server_loop: ServerLoop = field(init=False)
    _evaluated: int = field(default=0, init=False)  # version of the weights

    def evaluate(self) -> dict[str, float]:
        """Return metrics of the whole test set; {} if these weights were evaluated before."""
        version = self.server_loop.store.model.version
        if self._evaluated == version:
            return {}
        self._evaluated = version
        if any(True for _ in self.model.buffers()):
            set_buffers(self.model, self.server_loop.buffers())
        return super().evaluate()

    def own(self) -> dict[str, Any]:
        store = self.server_loop.store
        return super().own() | {"version": store.model.version, "pushed": store.pushed}

    def load_state_dict(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        super().load_state_dict(shared, own)
        store = self.server_loop.store
        store.model.version = self._evaluated = own["version"]
        store.pushed.copy_(own["pushed"])
