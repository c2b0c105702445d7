"""A server in this process, over TCP on the loopback interface; and what uses it.

The weights of a `Bench` are one for each push of a run, zero at first, and a push takes 1 from its
own. So the weights show how many times each push was applied.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from compressors.topk import TopK
from harness.clock import Clock
from harness.config import sweep
from harness.config.run import Run
from harness.config.server import Server
from harness.engine.parameter_server.build import server_loop_of
from harness.engine.parameter_server.captured import Contribution
from harness.engine.parameter_server.client import Client
from harness.engine.parameter_server.connection import ConnectionLost, Listening, join
from harness.engine.parameter_server.messages import Ack, Push
from harness.engine.parameter_server.parameter_store import ParameterStore
from harness.engine.parameter_server.processes import context_of
from harness.engine.parameter_server.server_loop import ServerLoop
from harness.engine.parameter_server.server_model import ServerModel
from harness.engine.parameter_server.transport import Process
from harness.engine.programs import build_loop
from harness.engine.training.rest import Rest, StopSchedule, no_checkpoint
from harness.records.run_directory import Table
from harness.validation import checked
from tests.ranks import free_port

PATIENCE_S = 200.0  # much longer than anything here takes on an idle machine


class Started(Clock):
    """As a supervisor starts it."""

    def call_ready(self) -> None:
        super().call_ready()
        self.start()


class Bench:
    """An asynchronous server of `workers` x `steps` weights, which ends when all has been done."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        steps: int,
        threads: int = 1,
        is_sync: bool = False,
        timeout_s: float = 10.0,
        eval_every: int = 1000,
    ) -> None:
        self.folder, self.steps = folder, steps
        self.model = nn.Linear(workers * steps, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        optimizer = torch.optim.SGD(self.model.parameters(), 1.0)
        self.weights = ServerModel(self.model, lambda version: optimizer.step(), TopK())
        self.clock = Started()
        table = Table(folder, "pushes.csv")
        table.header()
        mode = "sync" if is_sync else "async"
        self.store = ParameterStore(model=self.weights, layout=Server(mode, threads=threads),
                                    workers=workers, steps=steps, clock=self.clock, table=table,
                                    changed=threading.Condition())  # fmt: skip
        self.evaluated: list[tuple[int, int, int]] = []  # rounds, version, applied in all
        self.server_loop = ServerLoop(
            self.store, Process(folder, "127.0.0.1", self.clock, timeout_s, port=0)
        )
        door = self.server_loop.door
        assert isinstance(door, Listening)
        self.port = door.port
        stops = StopSchedule(steps, eval_every, None)
        own = self.clock, self.server_loop, self._evaluate, no_checkpoint, None
        self.server_loop.rest = Rest(stops, 0, *own)
        self.store.is_due = self.server_loop.rest.is_due

    def _evaluate(self) -> dict[str, float]:
        before = self.weights.version
        time.sleep(0.02)  # a thread that does not wait would go on
        self.evaluated.append((self.server_loop.rest.done, before, self.weights.version))
        return {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve meanwhile, and to the end afterwards."""
        failures: list[BaseException] = []

        def serve() -> None:
            try:
                self.server_loop.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        except ConnectionLost as error:
            thread.join(PATIENCE_S)
            raise (failures[0] if failures else error) from error  # the server's is the cause
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not end"
        if failures:
            raise failures[0]

    def counts(self) -> list[list[int]]:
        """How many times each push was applied, by rank and step."""
        return (-self.model.weight.detach()).view(-1, self.steps).int().tolist()

    def pushes(self) -> pd.DataFrame:
        return pd.read_csv(self.folder / "pushes.csv")


class Pusher:
    """A thread of a trainer, by hand."""

    def __init__(self, port: int, rank: int, entries: int, thread: int = 0):
        self.rank, self.entries = rank, entries
        self.client = Client(join("127.0.0.1", port, PATIENCE_S), _no_answer)
        self.first = self.client.hello(rank, thread, entries)
        self.room = torch.zeros(entries)

    def pull(self) -> int:
        return self.client.pull(self.room)

    def push(self, step: int, steps: int, version: int = 0) -> Ack:
        """Of 1 at the place of this rank's `step`, of `steps`."""
        index = torch.tensor([self.rank * steps + step], dtype=torch.int32)
        return self.client.push(*pushed(step, [torch.ones(1), index], version))


def pushed(step: int, tensors: list[Tensor], version: int = 0) -> tuple[Push, Contribution]:
    """What a compressor hands to one collective."""
    push = Push(step, version, len(tensors), 1.0, tensors[0].numel(), 0.0, 0)
    return push, Contribution(step, 1.0, [[tuple(tensors)]])


def _no_answer(ask: object) -> Tensor:
    raise AssertionError("nobody is asked here")


def run_of(*overrides: str) -> Run:
    with sweep.hydra():
        return checked(sweep.plain_settings(sweep.load(overrides)))


def train(folder: Path, run: Run, timeout_s: float = 30.0) -> Path:
    """The server and all trainers of `run`, in threads of this process; the run directory."""
    folder.mkdir()
    clock, workers = Clock(), run.workers
    process = Process(folder, "127.0.0.1", clock, timeout_s, free_port())
    torch.manual_seed(run.seed)  # as every process does
    server_loop = server_loop_of(run, context_of(run, process, workers))
    failures: list[BaseException] = []

    def kept(work: Callable[[], object]) -> None:
        torch.set_num_threads(1)
        try:
            work()
        except BaseException as error:
            failures.append(error)

    trainers = [build_loop(run, context_of(run, process, rank)) for rank in range(workers)]
    works = [server_loop.run, *(trainer.run for trainer in trainers)]
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
