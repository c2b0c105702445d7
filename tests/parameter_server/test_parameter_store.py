"""What a server does with pushes: exact counts over TCP, and a run that ends with a trainer."""

import math
import threading
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from harness.engine.parameter_server.connection import ConnectionLost, join
from harness.engine.parameter_server.messages import Ack, Hello, ProtocolError, Pull, Push
from harness.engine.parameter_server.server_loop import TrainerLost
from tests.launching import until
from tests.parameter_server.scenes import PATIENCE_S, Bench, Pusher, pushed


def steps_of(pusher: Pusher, steps: int) -> None:
    """Do all steps of a thread by itself, and its end."""
    for step in range(pusher.first, steps):
        pusher.push(step, steps, pusher.pull())
    pusher.client.done()


def together(*works: object) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def race(bench: Bench, steps: int, lead: int | None = None) -> None:
    """Have two trainers of two threads each take turns at their steps.

    With `lead` the last thread does a step when the others are so many ahead of it, or done.
    """
    share = steps // 2

    def work(pusher: Pusher, thread: int) -> None:
        for done, step in enumerate(range(thread, steps, 2)):
            version = pusher.pull()
            if lead is not None and (pusher.rank, thread) == (1, 1):
                all_done = done + 3 * min(share, done + lead)
                until(lambda n=all_done: bench.weights.version >= n, "the others' lead")
            pusher.push(step, steps, version)
        pusher.client.done()

    with bench.running():
        places = [(rank, thread) for rank in range(2) for thread in range(2)]
        pushers = [(Pusher(bench.port, r, 2 * steps, t), t) for r, t in places]
        together(*(lambda p=p, t=t: work(p, t) for p, t in pushers))


def test_a_slow_thread_is_left_behind(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=16, threads=2)
    race(bench, 16, lead=8)
    assert bench.pushes().ahead.max() == 7  # before its last push
    assert bench.counts() == [[1] * 16] * 2


def test_all_threads_wait_during_an_evaluation(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=12, threads=2, eval_every=2)
    race(bench, 12)
    assert all(before == after for _, before, after in bench.evaluated)
    assert [done for done, _, _ in bench.evaluated][-1] == 12
    assert len(bench.evaluated) >= 4


def bad(index: list[int], values: list[float], step: int = 0, version: int = 0) -> tuple:
    return pushed(step, [torch.tensor(values), torch.tensor(index, dtype=torch.int32)], version)


POSITIONS = "positions are not distinct"
REFUSED = {
    "nan": (bad([1], [math.nan]), "a value is not finite"),
    "infinite": (bad([1, 2], [1.0, math.inf]), "a value is not finite"),
    "beyond the end": (bad([8], [1.0]), POSITIONS),
    "negative": (bad([-1, 2], [1.0, 1.0]), POSITIONS),
    "twice the same": (bad([2, 2], [1.0, 1.0]), POSITIONS),
    "no such step": (bad([1], [1.0], step=8), "step 8"),
    "of the future": (bad([1], [1.0], version=99), "version 99 is not one of"),
    "fewer values": (bad([0, 1], [1.0]), POSITIONS),
    "more values": (bad([0, 1], [1.0, 1.0, 1.0]), POSITIONS),
    "of no compressor": (pushed(0, [torch.ones(4)]), "a push has other tensors"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_push_at_fault_ends_the_run_with_its_rank_and_changes_nothing(case, tmp_path):
    (push, content), reason = REFUSED[case]
    bench = Bench(tmp_path, workers=1, steps=8)
    with pytest.raises(TrainerLost, match=f"trainer rank 0 is lost: .*{reason}"), bench.running():
        Pusher(bench.port, 0, 8).client.push(push, content)
    assert bench.counts() == [[0] * 8]


ROW = [0, 0, 0, 8]  # bucket, call, float32, elements
UNFIT = {
    "bucket": [1, 0, 0, 8], "call": [0, 1, 0, 8], "type": [0, 0, 99, 8], "size": [0, 0, 0, -1],
    "memory": [0, 0, 0, 1 << 40],
}  # fmt: skip
LAYOUTS = {name: (1, row) for name, row in UNFIT.items()} | {"-1": (-1, ROW), "many": (10**6, ROW)}


@pytest.mark.parametrize("case", LAYOUTS)
def test_a_layout_that_fits_no_model_ends_the_run_before_its_tensors_are_read(case, tmp_path):
    tensors, row = LAYOUTS[case]
    bench = Bench(tmp_path, workers=1, steps=8)
    with pytest.raises(TrainerLost, match="fits no model|does not fit a model"), bench.running():
        pusher = Pusher(bench.port, 0, 8)
        push = Push(0, 0, tensors, 1.0, 8, 0.0, 0)
        pusher.client.connection.send(push, torch.tensor(row), torch.ones(8))
        pusher.client.connection.receive()
    assert bench.counts() == [[0] * 8]


@pytest.mark.parametrize(("message", "reason"), [
    (Hello(0, 0, 7), "has a model of 7 parameters"),
    (Hello(2, 0, 8), "ranks are in"),
    (Pull(), "expected Hello, got Pull"),
])  # fmt: skip
def test_a_wrong_first_message_ends_the_run(message, reason, tmp_path):
    bench = Bench(tmp_path, workers=1, steps=8)
    with pytest.raises(ProtocolError, match=reason), bench.running():
        connection = join("127.0.0.1", bench.port, PATIENCE_S)
        connection.send(message)
        raise ConnectionLost("the server's failure is the cause")


def test_a_synchronous_round_waits_for_all_and_applies_their_mean(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=3, is_sync=True)
    with bench.running():
        pushers = [Pusher(bench.port, rank, 6) for rank in range(2)]
        together(*(lambda p=p: steps_of(p, 3) for p in pushers))
    assert torch.equal(-bench.model.weight.detach(), torch.full((1, 6), 0.5))
    assert bench.weights.version == 3 and (bench.pushes().staleness == 0).all()


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_run_ends_with_the_first_trainer_that_is_gone(is_sync, tmp_path):
    bench = Bench(tmp_path, workers=2, steps=3, is_sync=is_sync)
    with pytest.raises(TrainerLost, match="trainer rank 1 is lost: Connection closed by peer"):
        with bench.running():
            pushers = [Pusher(bench.port, rank, 6) for rank in range(2)]
            pushers[1].client.connection.close()


def test_a_run_ends_with_a_silent_trainer(tmp_path):
    bench = Bench(tmp_path, workers=1, steps=3, timeout_s=0.5)
    with pytest.raises(TrainerLost, match="trainer rank 0 is lost: Timed out waiting 0.5 s"):
        with bench.running():
            silent = Pusher(bench.port, 0, 3)
    assert silent.first == 0


def test_a_trainer_notices_at_once_that_the_server_is_gone(tmp_path):
    def serve(pipe) -> None:
        bench = Bench(Path(tmp_path), workers=1, steps=8)
        with bench.running():
            pipe.send(bench.port)
            time.sleep(60)

    context = get_context("fork")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there,))
    server.start()
    port = here.recv()
    pusher = Pusher(port, 0, 8)
    assert isinstance(pusher.push(0, 8), Ack)
    server.kill()
    server.join()  # before that the server may still answer
    with pytest.raises(ConnectionLost, match="Connection (closed|reset) by peer"):
        pusher.pull()
    with pytest.raises(ConnectionLost, match="nobody listens"):
        join("127.0.0.1", port, 1.0)
