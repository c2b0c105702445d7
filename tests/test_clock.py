"""The run's clock: stands still while paused, one time in every process."""

import multiprocessing
import time

import pytest

from harness.clock import Clock


def test_no_time_before_step_0_and_seconds_after():
    clock = Clock(dilation=2.0)
    assert clock.time_s() is None and not clock.running
    clock.start()
    assert clock.running
    first = clock.now()
    time.sleep(0.02)
    assert clock.now() >= first + 0.02
    now, emulated = clock.now(), clock.time_s()
    assert now / 2 <= emulated <= clock.now() / 2


def test_a_pause_takes_no_time():
    clock = Clock()
    clock.start()
    before = clock.now()
    clock.pause(before)
    time.sleep(0.05)
    assert clock.now() == pytest.approx(before) and not clock.running
    clock.resume()
    assert before - 1e-6 <= clock.now() < before + 0.05


def test_a_clock_may_begin_where_another_was_left():
    clock = Clock(dilation=2.0, begins_s=100.0)
    assert clock.time_s() is None
    clock.start()
    assert 100 <= clock.time_s() < 110
    clock.pause(before := clock.now())
    clock.resume()
    assert 200 <= before <= clock.now() < 220


def _pause_from_elsewhere(clock):
    clock.pause(clock.now())
    clock.call_ready()


def test_all_processes_share_one_clock():
    clock = Clock()
    clock.start()
    other = multiprocessing.get_context("fork").Process(target=_pause_from_elsewhere, args=(clock,))
    other.start()
    other.join()
    assert clock.ready and not clock.running
    assert clock.now() == clock.now()


def test_its_times_are_found_on_the_system_clock_also_after_a_pause():
    clock = Clock(dilation=3.0)
    clock.start()
    clock.pause(clock.now())
    time.sleep(0.02)
    clock.resume()
    before = time.monotonic()
    found = clock.monotonic(clock.now())
    assert before <= found <= time.monotonic()


def test_who_was_behind_when_it_stopped_goes_on_at_a_time_of_its_own():
    clock = Clock()
    clock.start()
    clock.pause(clock.now())
    behind = clock.now() + 0.05
    clock.resume()
    clock.wait_until(behind)
    assert clock.running and clock.now() >= behind


def _report_back_later(clock, local_rank, wait_s):
    time.sleep(wait_s)
    clock.report_back(local_rank)


def test_it_goes_on_when_the_last_rank_is_back_every_time():
    clock, fork = Clock(), multiprocessing.get_context("fork")
    clock.start()
    for waits_s in ([0.2, 0.0], [0.0, 0.2]):
        clock.pause(clock.now())
        stopped, at = time.monotonic(), clock.now()
        others = [
            fork.Process(target=_report_back_later, args=(clock, local_rank, wait_s))
            for local_rank, wait_s in enumerate(waits_s, start=1)
        ]
        for other in others:
            other.start()
        clock.report_back(0)
        clock.resume_with(3)
        waited_s, counted_s = time.monotonic() - stopped, clock.now() - at
        assert clock.running and waited_s >= 0.2 and counted_s <= waited_s - 0.2
        for other in others:
            other.join()
