"""A rank that stands still is seen by the kernel's word, with its cause, and no other rank is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from harness.runner import pauses
from harness.runner.pauses import Pauses, Seen


@pytest.fixture
def ranks():
    """Two processes that sleep."""
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield {rank: process.pid for rank, process in enumerate(started)}
    for process in started:
        process.kill()
        process.wait()


def looked(watch: Pauses, until: Callable[[], object]) -> None:
    """Look until `until()`; how often it is looked at depends on how long a look takes."""
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        watch.look()
        time.sleep(0.02)


def test_a_rank_that_a_signal_stopped_is_told_for_as_long_as_it_was(ranks):
    times = []
    watch = Pauses(ranks, lambda: times.append(time.monotonic()) or times[-1])
    looked(watch, lambda: len(times) > 2)
    os.kill(ranks[1], signal.SIGSTOP)
    began_s = times[-1]
    looked(watch, lambda: 1 in watch._now and watch._now[1].length_s >= pauses.LEAST_S)
    os.kill(ranks[1], signal.SIGCONT)
    looked(watch, lambda: 1 not in watch._now)
    [pause] = watch.end()
    assert (pause.rank, pause.cause) == (1, "was stopped by a signal")
    assert pause.time_s in times and pause.time_s >= began_s
    assert pauses.LEAST_S <= pause.length_s <= times[-1] - pause.time_s


def test_a_rank_that_is_gone_is_no_pause(ranks):
    times = []
    watch = Pauses(ranks | {2: 2**22 - 1}, lambda: times.append(time.monotonic()) or times[-1])
    looked(watch, lambda: len(times) > 3)
    assert watch.end() == []


def judged(monkeypatch, seen, times_s):
    """Pauses of one rank that is `seen` so at these monotonic times, with a clock that runs."""
    return watched(monkeypatch, seen, times_s).end()


def watched(monkeypatch, seen, times_s):
    each, now = iter(seen), iter(times_s)
    monkeypatch.setattr(pauses, "look_at", lambda process: next(each))
    watch = Pauses({0: 1}, lambda: clock[0])
    clock = [0.0]
    for clock[0] in times_s:
        at = next(now)
        monkeypatch.setattr(pauses.time, "monotonic", lambda at=at: at)
        watch.look()
    return watch


def test_a_thread_that_waits_for_a_processor_is_told_and_one_that_shares_it_is_not(monkeypatch):
    times_s = [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5]
    starved = [Seen(False, {7: 0.0, 8: 0.9 * (at - 1)}, {}) for at in times_s]
    [pause] = judged(monkeypatch, starved, times_s)
    assert pause.cause == "waited for a processor" and pause.length_s == pytest.approx(1.5)
    shares = [Seen(False, {7: 0.6 * (at - 1), 8: 0.6 * (at - 1)}, {}) for at in times_s]
    assert judged(monkeypatch, shares, times_s) == []


def test_what_threads_waited_is_told_of_what_they_wanted(monkeypatch):
    """Of what they had before the first look, and before their own, nothing is said."""
    times_s = [1.0, 1.25, 1.5]
    seen = [Seen(False, {7: 2.0}, {7: 5.0}), Seen(False, {7: 2.1, 8: 9.0}, {7: 5.1, 8: 9.0})]
    seen.append(Seen(False, {7: 2.1, 8: 9.1}, {7: 5.3, 8: 9.5}))
    watch = watched(monkeypatch, seen, times_s)
    assert watch.waited_share == pytest.approx(0.2 / (0.2 + 0.8))
    uncounted = [Seen(False, {7: 0.0}, {7: 0.0}) for _ in times_s]
    assert watched(monkeypatch, uncounted, times_s).waited_share is None


def test_a_short_wait_and_one_while_the_clock_stands_still_are_not_told(monkeypatch):
    times_s = [1.0, 1.25, 1.5, 1.75, 2.0]
    short = [Seen(at == 1.5, {}, {}) for at in times_s]
    assert judged(monkeypatch, short, times_s) == []
    watch = Pauses({0: os.getpid()}, lambda: 3.0)
    monkeypatch.setattr(pauses, "look_at", lambda process: Seen(True, {}, {}))
    for at in times_s:
        monkeypatch.setattr(pauses.time, "monotonic", lambda at=at: at)
        watch.look()
    assert watch.end() == []


def test_the_kernel_is_asked_for_every_thread_of_a_process():
    code = "import threading, time; [threading.Thread(target=time.sleep, args=(9,)).start() " \
        "for _ in range(3)]; print(flush=True)"  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        seen = pauses.look_at(process.pid)
        assert seen is not None and len(seen.waited_s) == 4 and not seen.stopped
    finally:
        process.kill()
        process.wait()
