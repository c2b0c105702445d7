"""The server of a run, put together from its settings, or from a checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from harness.clock import Clock
from harness.data.loader import Batches, shard
from harness.parameter_server.flat import set_buffers
from harness.parameter_server.gate import Gate
from harness.parameter_server.line import Listening
from harness.parameter_server.roll import Roll
from harness.parameter_server.service import Service
from harness.parameter_server.serving import Serving
from harness.parameter_server.weights import Weights
from harness.records import Evaluation, Events, Table
from harness.settings import Settings
from harness.training import checkpoint
from harness.training.assembly import load_weights, optimizer_of
from harness.training.checkpoint import Files
from harness.training.resume import Resumed, deciding, resumed
from harness.training.stops import Stops
from harness.training.task import Task

PORT = 29501  # inside the server's namespace
CPU = torch.device("cpu")


class Place(NamedTuple):
    """Where a process of the run is, and what it shares with the others."""

    run_dir: Path
    address: str  # of the server
    clock: Clock
    timeout_s: float  # real, of silence in a session
    roll: Roll
    port: int = PORT  # where the server listens


def built_model(settings: Settings) -> nn.Module:
    """With the weights that every run of this seed begins with."""
    data = settings.build("dataset")
    torch.manual_seed(settings["seed"])
    model = settings.build("model").build(data.shape, data.classes)
    load_weights(settings, model, CPU)
    return model


def batches_of(settings: Settings, rank: int, first: int = 0) -> Batches:
    size = settings["accumulate"] * settings["batch_size"]
    train = settings.build("dataset").train()
    return Batches(train, size, rank, settings["workers"], settings["seed"], first)


def serving_of(settings: Settings, place: Place) -> Serving:
    """The server, ready to let trainers in."""
    layout, data = settings.build("parallel"), settings.build("dataset")
    workers, options = settings["workers"], settings["optimizer"]
    steps = settings.total_steps(batches_of(settings, 0).steps_per_epoch)
    schedule, begin = settings.build("optimizer.schedule"), resumed(settings["resume_from"])
    is_sync = layout.mode == "sync"
    per_round = 1 if is_sync else workers
    weights = Weights(
        model=built_model(settings),
        optimizer_of=partial(optimizer_of, options),
        learning_rate=lambda v: options["lr"] * schedule.factor(v // per_round, steps),
        clip_norm=options["clip_norm"],
    )
    events, table = Events(place.run_dir), Table(place.run_dir, "pushes.csv")
    service = Service(
        weights=weights,
        gate=Gate(layout.staleness_bound, place.clock.now),
        workers=workers,
        stops=Stops.of(settings, steps, data.metric),
        is_sync=is_sync,
        consistent_pull=layout.consistent_pull,
        clock=place.clock,
        table=table,
        events=events,
        all_joined=place.clock.call_ready,
        threads=layout.threads,
    )
    if begin is not None:
        _go_on(begin, service)
    if layout.drain_period is not None:
        layers = len(list(weights.model.parameters()))
        expected = layers * workers * steps / layout.drain_period
        events.append("drains_expected", expected=expected, period=layout.drain_period)
        print(f"{expected:g} drains expected: {layers} layers, {workers} x {steps} steps")
    table.header()
    tester = Tester(settings, place, weights.model, Table(place.run_dir, "evaluations.csv"))
    return Serving(
        service=service,
        listening=Listening(place.address, place.port, place.timeout_s),
        timeout_s=place.timeout_s,
        is_lost=place.roll.is_struck,
        evaluate=tester.evaluate,
        save=partial(_save, settings, place, service),
    )


@dataclass
class Tester:
    """Evaluates the server's model on the whole test set."""

    settings: Settings
    place: Place
    model: nn.Module
    table: Table

    def __post_init__(self) -> None:
        data = self.settings.build("dataset")
        self._task = Task(data.metric, CPU, self.settings["precision"])
        self._test_set = shard(data.test(), 0, 1)

    @torch.no_grad()
    def evaluate(self, done: int, buffers: Callable[[], Tensor]) -> dict[str, float]:
        """Metrics, which are also written; `buffers` asks for a trainer's."""
        if any(True for _ in self.model.buffers()):
            set_buffers(self.model, buffers())
        self.model.eval()
        metrics = self._task.metrics(self._task.tested(self.model, iter(self._test_set)))
        self.model.train()
        time_s = self.place.clock.time_s() or 0.0
        rows = [Evaluation(done, time_s, name, value) for name, value in metrics.items()]
        self.table.append(*rows)
        return metrics


def _save(
    settings: Settings, place: Place, service: Service, done: int, parts: list[Files]
) -> None:
    """A checkpoint: the model, the server's own, and the `parts` that trainers have written."""
    writer = checkpoint.Writer(
        run_dir=place.run_dir,
        rank=service.workers,
        leads=True,
        gather=lambda mine: [mine, *parts],
        device="cpu",
        settings=deciding(settings.config),
        events=service.events,
    )
    weights, time_s = service.weights, place.clock.time_s() or 0.0
    own = {
        "version": weights.version,
        "optimizer": weights.optimizer.state_dict(),
        "applied": service.applied,
    }
    writer.write(done, time_s, {"model": weights.model.state_dict()}, own)
    missing = service.workers - len(parts)
    service.events.append("checkpoint", time_s, step=done, missing_ranks=missing)


def _go_on(begin: Resumed, service: Service) -> None:
    weights = service.weights
    own = checkpoint.load(begin.folder, checkpoint.rank_file(service.workers), CPU)
    weights.model.load_state_dict(checkpoint.load(begin.folder, checkpoint.MODEL, CPU)["model"])
    weights.optimizer.load_state_dict(own["optimizer"])
    weights.version = own["version"]
    done = min(own["applied"].shape[1], service.applied.shape[1])
    service.applied[:, :done] = own["applied"][:, :done]
    service.stopped_at = service.rounds()
