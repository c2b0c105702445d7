"""A server in this process, over TCP on the loopback interface; and what uses it.

`Bench` counts: its weights are one for each push there may be, zero at first, and a push of a
trainer takes 1 from its own. What was applied, and how many times, is then in the weights.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch
from hydra import compose, initialize_config_dir
from torch import Tensor, nn

from harness.clock import Clock
from harness.parameter_server.assembly import Place, serving_of
from harness.parameter_server.client import Client
from harness.parameter_server.gate import Gate
from harness.parameter_server.line import LineLost, Listening, join
from harness.parameter_server.messages import Ack, Push
from harness.parameter_server.roll import Roll
from harness.parameter_server.service import Service
from harness.parameter_server.serving import Serving
from harness.parameter_server.training import trainer_of
from harness.parameter_server.weights import Weights
from harness.records import Events, Table, read_events
from harness.settings import Settings
from harness.sweep import plain_settings
from harness.training.stops import Stops
from tests.ranks import free_port

CONF = Path(__file__).resolve().parents[2] / "conf"
PATIENCE_S = 200.0  # much longer than anything here takes on an idle machine


class Bench:
    """An asynchronous server of `workers` x `steps` weights, which ends when all has been done."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        steps: int,
        threads: int = 1,
        bound: int | None = None,
        is_sync: bool = False,
        timeout_s: float = 10.0,
        eval_every: int = 1000,
    ) -> None:
        self.folder, self.steps, self.lost = folder, steps, set[int]()
        self.model = nn.Linear(workers * steps, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.weights = Weights(
            self.model, lambda model: torch.optim.SGD(model.parameters()), lambda version: 1.0
        )
        self.clock = Clock()
        table = Table(folder, "pushes.csv")
        table.header()
        self.service = Service(
            weights=self.weights,
            gate=Gate(bound, self.clock.now),
            workers=workers,
            stops=Stops(steps, eval_every, None),
            is_sync=is_sync,
            consistent_pull=True,
            clock=self.clock,
            table=table,
            events=Events(folder),
            all_joined=self._begin,
            threads=threads,
        )
        self.evaluated: list[tuple[int, int, int]] = []  # rounds, version, applied in all
        self.serving = Serving(
            service=self.service,
            listening=Listening("127.0.0.1", 0, timeout_s),
            timeout_s=timeout_s,
            is_lost=self.lost.__contains__,
            evaluate=self._evaluate,
            save=lambda done, parts: None,
        )
        self.port = self.serving.listening.port

    def _begin(self) -> None:
        self.clock.call_ready()
        self.clock.start()

    def _evaluate(self, done: int, buffers: Callable[[], Tensor]) -> dict[str, float]:
        before = self.weights.version
        time.sleep(0.02)  # what is not stopped would go on
        self.evaluated.append((done, before, self.weights.version))
        return {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve meanwhile, and to the end afterwards."""
        failures: list[BaseException] = []

        def serve() -> None:
            try:
                self.serving.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        except LineLost as error:  # what ended the server is the cause
            raise (failures[0] if failures else error) from error
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not end"
        if failures:
            raise failures[0]

    def counts(self) -> list[list[int]]:
        """How many times each push was applied, by rank and step."""
        return (-self.model.weight.detach()).view(-1, self.steps).int().tolist()

    def pushes(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "pushes.csv")

    def events(self, name: str) -> list[dict]:
        return [event for event in read_events(self.folder) if event["event"] == name]


class Pusher:
    """A thread of a trainer, by hand."""

    def __init__(self, port: int, rank: int, entries: int, thread: int = 0, patience: float = 10.0):
        self.rank, self.entries = rank, entries
        self.client = Client(join("127.0.0.1", port, patience, PATIENCE_S), _no_answer)
        self.first = self.client.hello(rank, thread, entries)
        self.room = torch.zeros(entries)

    def pull(self) -> int:
        return self.client.pull(self.room)

    def push(self, step: int, steps: int, version: int = 0) -> Ack:
        """Of 1 at the place of this rank's `step`, of `steps`."""
        index = torch.tensor([self.rank * steps + step], dtype=torch.int32)
        return self.client.push(Push(step, version, 1, 4, 0.0, 0), torch.ones(1), index)


def _no_answer(ask: object) -> Tensor:
    raise AssertionError("nobody is asked here")


def settings(*overrides: str) -> Settings:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        found = plain_settings(compose("config", overrides=list(overrides)))
    found.check()
    return found


def train(folder: Path, found: Settings, timeout_s: float = 30.0) -> Path:
    """The server and all trainers of `found`, in threads of this process; the run directory."""
    folder.mkdir()
    clock, workers = Clock(), found["workers"]
    place = Place(folder, "127.0.0.1", clock, timeout_s, Roll(workers), free_port())
    serving = serving_of(found, place)
    failures: list[BaseException] = []

    def kept(work: Callable[[], object]) -> None:
        torch.set_num_threads(1)
        try:
            work()
        except BaseException as error:
            failures.append(error)

    trainers = [trainer_of(found, place, rank, False, 1) for rank in range(workers)]
    works = [serving.run, *(trainer.run for trainer in trainers)]
    threads = [threading.Thread(target=kept, args=(work,), daemon=True) for work in works]
    for table in ("steps.csv", "evaluations.csv"):
        Table(folder, table).header()
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE_S
    while not clock.ready and not failures and time.monotonic() < end:
        time.sleep(0.01)
    clock.start()
    for thread in threads:
        thread.join(max(0.1, end - time.monotonic()))
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    return folder
