"""What other programs add to a run is bounded from above, and the bound decides its grade."""

import os
import subprocess
import sys
import threading
import time
from math import inf, isnan

import pytest

from harness.engine.exchange.processor_waits import ProcessorWaits
from harness.runner import lateness, validity
from harness.runner.lateness import Lateness, Processors
from harness.runner.validity_checks import of_lateness

HOG = "import os; os.sched_setaffinity(0, {0})\nwhile True: pass"


def rows(*waits: tuple[float, float], late=0.0, sent=0):
    """Rows of two ranks, of which `waits` has what each waited in one step."""
    return [
        {"step": str(step), "late_s": str(late), "waited_s": str(waited), "compute_s": "0.06",
         "compute_before_first_bucket_s": "0.06", "sent_bytes": str(sent)}
        for step, of_ranks in enumerate(waits) for waited in of_ranks
    ]  # fmt: skip


@pytest.mark.parametrize(("waits", "late_s", "processors", "fastest_s", "at_most_s"), [
    ([(0.01, 0.02), (0.0, 0.03)], 0.0, Processors(), 0.0, 0.06),  # summed over ranks
    ([(0.0, 0.0), (0.0, 0.0)], 0.04, Processors(), 0.0, 0.08),  # the latest of each step
    ([(0.3, 0.2)], 0.1, Processors(others_s=0.05), 0.0, 0.15),  # no more than others ran
    ([(0.0, 0.0)], 0.0, Processors(0.0, stolen_s=0.2), 0.0, 0.2),
    ([(0.5, 0.5)], 0.0, Processors(stolen_s=0.2), 0.9, 0.1),  # no machine is faster
])  # fmt: skip
def test_the_least_of_three_bounds_counts(waits, late_s, processors, fastest_s, at_most_s):
    late = lateness.bound(rows(*waits, late=late_s), 1.0, processors, fastest_s)
    assert late == pytest.approx((at_most_s, at_most_s))


@pytest.mark.parametrize("waited", ["nan", "", None])
def test_without_the_kernels_count_there_is_no_bound(waited):
    steps = [*rows((0.0, 0.0)), rows((0.0, 0.0))[0] | {"waited_s": waited}]
    assert lateness.bound(steps, 1.0, Processors()) is None


@pytest.mark.parametrize(
    ("mbit", "step_s"),
    [(inf, 0.06), (32, 0.06 + 48_516 * 8 / 32e6 * 1514 / 1448 - 0.002), (1e6, 0.06)],
)
def test_no_step_is_faster_than_its_pace_and_its_bytes(mbit, step_s):
    two = rows((0.0, 0.0), (0.0, 0.0), sent=48_516)
    assert lateness.fastest_s(two, mbit, 0.002) == pytest.approx(2 * step_s)


@pytest.mark.parametrize(
    ("share", "grade", "with_times"),
    [(0.0, "valid", "valid"), (0.05, "valid", "valid"), (0.051, "bounded", "invalid"),
     (0.25, "bounded", "invalid"), (0.26, "invalid", "invalid"), (1.0, "invalid", "invalid")],
)  # fmt: skip
def test_a_grade_follows_from_the_bound_and_from_who_reads_times(share, grade, with_times):
    late = Lateness(2 * share, share)
    for reads_times, expected in ((False, grade), (True, with_times)):
        reasons = of_lateness(late, reads_times)
        assert validity.graded(reasons, late)["grade"] == expected
        assert all("late by at most" in reason for reason in reasons)
    assert validity.graded(["another reason"], late)["grade"] == "invalid"


def test_a_hog_that_delays_a_thread_adds_its_delay_to_the_bound():
    """By the waits of the thread, by the time that the hog had, and by the run's own time."""
    before = os.sched_getaffinity(0)
    hog = subprocess.Popen([sys.executable, "-c", HOG])
    try:
        os.sched_setaffinity(0, {0})
        waits = ProcessorWaits()
        waits.handed_over()
        began, ran = time.monotonic(), time.thread_time()
        while time.thread_time() - ran < 0.1:
            pass
        took_s, own_s = time.monotonic() - began, time.thread_time() - ran
        counted_s, others_s = waits.take_s(), took_s - own_s  # on the one processor
    finally:
        os.sched_setaffinity(0, before)
        hog.kill()
        hog.wait()
    steps = [{"step": "0", "late_s": "0", "waited_s": str(counted_s)}]
    for processors, fastest_s in (
        (Processors(), 0.0),
        (Processors(others_s=others_s), 0.0),
        (Processors(others_s=others_s), own_s),
    ):
        late = lateness.bound(steps, took_s, processors, fastest_s)
        assert late is not None and late.at_most_s >= 0.95 * others_s - 0.001


def schedstat(folder, thread, waited_s, name="python"):
    (folder / thread).mkdir(parents=True, exist_ok=True)
    (folder / thread / "schedstat").write_text(f"5 {round(waited_s * 1e9)} 7\n")
    (folder / thread / "comm").write_text(f"{name}\n")


def test_waits_count_from_the_last_bucket_of_who_trains_and_from_when_others_send(tmp_path):
    """Of one that sends they count from when it began to wait for the first bucket's time."""
    own = str(threading.get_native_id())
    names = {own: "python", "x": "gloo_tcp_loop", "y": "exchange"}  # no real thread

    def waited(*seconds: float) -> None:
        for (thread, name), value in zip(names.items(), seconds, strict=True):
            schedstat(tmp_path, thread, value, name)

    def send() -> None:
        sender = str(threading.get_native_id())
        schedstat(tmp_path, sender, 10, "exchange wire")
        waits.handed_over()

        def sleep() -> None:
            schedstat(tmp_path, sender, 10.125, "exchange wire")
            waited(4.5, 16, 6.25)

        waits.until_due(1.0, sleep)
        waits.until_due(1.0, lambda: waited(5, 17, 6.25))  # of the second bucket

    waited(0, 0, 0)
    waits = ProcessorWaits(tmp_path)
    waited(1, 2, 4)  # before the first bucket
    waits.handed_over()
    waited(3, 2, 5)  # computation goes on beside compression
    waits.handed_over()
    waited(3.5, 6, 5.25)
    assert waits.take_s() == pytest.approx(0.5 + 4 + 1.25)
    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert waits.take_s() == pytest.approx(0.5 + 1 + 1 + 0.125)
    assert waits.take_s() == 0.0


def test_a_kernel_that_counts_nothing_is_told_by_nan(tmp_path):
    (tmp_path / "1").mkdir()
    waits = ProcessorWaits(tmp_path)
    waits.handed_over()
    waits.until_due(0.1, lambda: None)
    assert isnan(waits.take_s())
