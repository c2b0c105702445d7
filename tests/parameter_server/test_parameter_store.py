"""What a server does with pushes, whoever they come from: exact counts, over TCP."""

import math
import os
import signal
import threading
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from harness.engine.parameter_server.connection import ConnectionLost, join
from harness.engine.parameter_server.messages import (
    Ack,
    Hello,
    ProtocolError,
    Pull,
    Push,
    Refusal,
)
from tests.launching import until
from tests.parameter_server.scenes import PATIENCE_S, Bench, Pusher, pushed

SOON_S = 1.5  # of silence, in tests of what is silent


def steps_of(pusher: Pusher, steps: int) -> None:
    """All steps of a thread by itself, and its end."""
    for step in range(pusher.first, steps):
        version = pusher.pull()
        assert pusher.push(step, steps, version).accepted
    pusher.client.done()


def together(*works: object) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def race(bench: Bench, steps: int, lead: int | None = None) -> None:
    """Two trainers of two threads that take turns at its steps, once all four have joined.

    With `lead` the last thread does a step when the others are so many ahead of it, or done.
    """
    joined = threading.Barrier(4)
    each = steps // 2

    def work(rank: int, thread: int) -> None:
        pusher = Pusher(bench.port, rank, 2 * steps, thread)
        joined.wait(PATIENCE_S)
        for done, step in enumerate(range(thread, steps, 2)):
            version = pusher.pull()
            if lead is not None and (rank, thread) == (1, 1):
                all_done = done + 3 * min(each, done + lead)
                until(lambda n=all_done: bench.weights.version >= n, "the others' lead")
            pusher.push(step, steps, version)
        pusher.client.done()

    with bench.running():
        together(*(lambda r=r, t=t: work(r, t) for r in range(2) for t in range(2)))


@pytest.mark.parametrize("bound", [0, 1])
def test_no_thread_is_further_ahead_than_the_bound(bound, tmp_path):
    """And versions follow: each of 3 others pushes at most 2 bound + 1 times meanwhile."""
    bench = Bench(tmp_path, workers=2, steps=16, threads=2, bound=bound)
    race(bench, 16, lead=bound + 1)
    pushes = bench.pushes()
    assert pushes.ahead.max() == bound
    assert pushes.staleness.max() <= 3 * (2 * bound + 1)
    assert bench.counts() == [[1] * 16] * 2


def test_without_a_bound_the_slow_one_is_left_behind(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=16, threads=2)
    race(bench, 16, lead=8)
    assert bench.pushes().ahead.max() == 7  # before its last push
    assert bench.counts() == [[1] * 16] * 2


def test_all_wait_while_the_model_is_evaluated(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=12, threads=2, eval_every=2)
    race(bench, 12)
    assert all(before == after for _, before, after in bench.evaluated)
    assert [done for done, _, _ in bench.evaluated][-1] == 12
    assert len(bench.evaluated) >= 4


def dies_within_a_push(port: int) -> None:
    pusher = Pusher(port, 0, 24)
    for step in range(4):
        pusher.push(step, 12)
    pusher.client.connection.send(Push(4, 0, 2, 1.0, 1, 0.0, 0))  # and nothing behind it
    os.kill(os.getpid(), signal.SIGKILL)


def hangs_and_comes_back(port: int) -> None:
    pusher = Pusher(port, 1, 24)
    for step in range(4):
        pusher.push(step, 12)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        pusher.push(4, 12)
        os._exit(1)  # the server has given it up
    except ConnectionLost:
        pusher = Pusher(port, 1, 24)
    assert pusher.first == 4
    steps_of(pusher, 12)
    os._exit(0)


@pytest.mark.timed
def test_who_dies_or_hangs_and_comes_back_loses_and_doubles_nothing(tmp_path):
    """With a bound, which the dead must not hold up."""
    bench = Bench(tmp_path, workers=2, steps=12, bound=2, timeout_s=SOON_S)
    fork = get_context("fork")
    processes = [
        fork.Process(target=work, args=(bench.port,))
        for work in (dies_within_a_push, hangs_and_comes_back)
    ]
    with bench.running():
        for process in processes:
            process.start()
        processes[0].join(PATIENCE_S)
        assert processes[0].exitcode == -signal.SIGKILL
        end = time.monotonic() + PATIENCE_S
        while len(bench.events("session_lost")) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        assert bench.counts() == [[1] * 4 + [0] * 8] * 2  # what was acknowledged
        os.kill(processes[1].pid, signal.SIGCONT)
        again = Pusher(bench.port, 0, 24)
        assert again.first == 4
        steps_of(again, 12)
        processes[1].join(PATIENCE_S)
    assert processes[1].exitcode == 0
    assert bench.counts() == [[1] * 12] * 2
    told = bench.store.told()
    assert (told["applied"], told["missing"], told["refused"]) == (24, 0, {})
    assert sorted(event["rank"] for event in bench.events("session_lost")) == [0, 1]


def test_the_run_ends_without_who_is_lost_for_good(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=8, timeout_s=SOON_S)
    with bench.running():
        gone = Pusher(bench.port, 0, 16)
        stays = Pusher(bench.port, 1, 16)
        gone.push(0, 8)
        gone.client.connection.close()
        bench.lost.add(0)
        steps_of(stays, 8)
    assert bench.counts() == [[1] + [0] * 7, [1] * 8]
    assert bench.store.told()["missing"] == 7


def bad(index: list[int], values: list[float], step: int = 0, version: int = 0) -> tuple:
    return pushed(step, [torch.tensor(values), torch.tensor(index, dtype=torch.int32)], version)


REFUSED = {
    "nan": (bad([1], [math.nan]), "not_finite"),
    "infinite": (bad([1, 2], [1.0, math.inf]), "not_finite"),
    "beyond the end": (bad([8], [1.0]), "index"),
    "negative": (bad([-1, 2], [1.0, 1.0]), "index"),
    "twice the same": (bad([2, 2], [1.0, 1.0]), "index"),
    "no such step": (bad([1], [1.0], step=8), "step"),
    "of the future": (bad([1], [1.0], version=99), "step"),
    "fewer values": (bad([0, 1], [1.0]), "index"),
    "more values": (bad([0, 1], [1.0, 1.0, 1.0]), "index"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_push_at_fault_is_refused_counted_and_does_no_harm(case, tmp_path):
    (push, content), reason = REFUSED[case]
    bench = Bench(tmp_path, workers=1, steps=8)
    with bench.running():
        pusher = Pusher(bench.port, 0, 8)
        assert not pusher.client.push(push, content).accepted
        steps_of(pusher, 8)  # the session goes on
    assert bench.counts() == [[1] * 8]
    assert bench.store.told()["refused"] == {reason: 1}
    assert [event["reason"] for event in bench.events("push_refused")] == [reason]


def test_the_same_push_is_not_applied_twice(tmp_path):
    bench = Bench(tmp_path, workers=1, steps=4)
    with bench.running():
        pusher = Pusher(bench.port, 0, 4)
        assert pusher.push(0, 4).accepted
        assert not pusher.push(0, 4).accepted
        for step in (1, 2, 3):
            pusher.push(step, 4)
        pusher.client.done()
    assert bench.counts() == [[1] * 4]
    assert bench.store.told()["refused"] == {"twice": 1}


def test_what_no_compressor_makes_is_refused_and_does_no_harm(tmp_path):
    """One tensor of half the entries: top-k sends values and positions."""
    bench = Bench(tmp_path, workers=1, steps=8)
    with bench.running():
        pusher = Pusher(bench.port, 0, 8)
        assert not pusher.client.push(*pushed(0, [torch.ones(4)])).accepted
        steps_of(pusher, 8)
    assert bench.counts() == [[1] * 8]
    [reason] = bench.store.told()["refused"]
    assert reason.startswith("unreadable: a push has other tensors")


ROW = [0, 0, 0, 8]  # bucket, call, float32, elements
UNFIT = {
    "bucket": [1, 0, 0, 8], "call": [0, 1, 0, 8], "type": [0, 0, 99, 8], "size": [0, 0, 0, -1],
    "memory": [0, 0, 0, 1 << 40],
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_a_layout_that_fits_no_model_ends_the_session_alone(case, tmp_path):
    bench = Bench(tmp_path, workers=1, steps=8)
    with bench.running():
        pusher = Pusher(bench.port, 0, 8)
        pusher.push(0, 8)
        push, _ = pushed(1, [torch.ones(8)])
        with pytest.raises(ConnectionLost):  # before the tensor was sent, or after
            pusher.client.connection.send(push, torch.tensor(UNFIT[case]), torch.ones(8))
            pusher.client.connection.receive()
        again = Pusher(bench.port, 0, 8)
        assert again.first == 1
        steps_of(again, 8)
    assert bench.counts() == [[1] * 8]
    assert bench.store.told()["refused"] == {"protocol": 1}


@pytest.mark.parametrize("tensors", [-1, 10**6])
def test_a_number_of_tensors_that_fits_no_model_ends_the_session_alone(tensors, tmp_path):
    bench = Bench(tmp_path, workers=1, steps=8)
    with bench.running():
        pusher = Pusher(bench.port, 0, 8)
        with pytest.raises(ConnectionLost):  # before the row was sent, or after
            pusher.client.connection.send(Push(0, 0, tensors, 1.0, 8, 0.0, 0), torch.tensor(ROW))
            pusher.client.connection.receive()
        steps_of(Pusher(bench.port, 0, 8), 8)
    assert bench.counts() == [[1] * 8]
    assert bench.store.told()["refused"] == {"size": 1, "protocol": 1}


def test_another_model_is_refused_when_it_says_so(tmp_path):
    bench = Bench(tmp_path, workers=1, steps=8)
    with bench.running():
        connection = join("127.0.0.1", bench.port, 5.0, PATIENCE_S)
        connection.send(Hello(0, 0, 7))
        assert connection.receive() == Refusal(8)
        with pytest.raises(ProtocolError, match="with 9 parameters, is refused"):
            Pusher(bench.port, 0, 9)
        steps_of(Pusher(bench.port, 0, 8), 8)
    assert bench.counts() == [[1] * 8]


def test_who_speaks_out_of_turn_is_shown_the_door(tmp_path):
    bench = Bench(tmp_path, workers=1, steps=2)
    with bench.running():
        connection = join("127.0.0.1", bench.port, 5.0, PATIENCE_S)
        connection.send(Pull())  # before Hello
        with pytest.raises(ConnectionLost):
            connection.receive()
        steps_of(Pusher(bench.port, 0, 2), 2)
    assert bench.store.told()["refused"] == {"protocol": 1}


def test_a_synchronous_round_waits_for_all_and_takes_their_mean(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=3, is_sync=True)
    with bench.running():
        pushers = [Pusher(bench.port, rank, 6) for rank in range(2)]
        together(*(lambda p=p: steps_of(p, 3) for p in pushers))
    assert torch.equal(-bench.model.weight.detach(), torch.full((1, 6), 0.5))
    assert bench.weights.version == 3 and (bench.pushes().staleness == 0).all()


def test_a_synchronous_run_fails_with_a_trainer(tmp_path):
    bench = Bench(tmp_path, workers=2, steps=3, is_sync=True)
    with pytest.raises(RuntimeError, match="the session of rank 1 is lost"):
        with bench.running():
            pushers = [Pusher(bench.port, rank, 6) for rank in range(2)]
            pushers[1].client.connection.close()


def test_a_server_that_ends_is_missed_at_once(tmp_path):
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
    pusher = Pusher(port, 0, 8, patience=30.0)
    assert isinstance(pusher.push(0, 8), Ack)
    server.kill()
    server.join()  # it may have time for an answer
    with pytest.raises(ConnectionLost, match="Connection (closed|reset) by peer"):
        pusher.pull()
    with pytest.raises(ConnectionLost, match="nobody listens"):
        join("127.0.0.1", port, 1.0, 1.0)
