"""Whatever runs is busy, at any nice; where the kernel does not tell of stalls, nothing is said."""

import os
import subprocess
import sys
import time

import pytest

from harness.emulation import pressure
from harness.emulation.pressure import Pressure, Since
from harness.emulation.user_namespace import command


@pytest.fixture
def after(tmp_path, monkeypatch):
    """What a machine is told to have been under, after 4 s of these ticks and stalls."""
    monkeypatch.setattr(pressure, "_TICKS", tmp_path / "stat")
    monkeypatch.setattr(pressure, "_STALLS", tmp_path / "cpu")
    monkeypatch.setattr(pressure, "_PROCESSES", tmp_path / "proc")
    (tmp_path / "proc" / "1").mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir()  # a number names a process, nothing else does

    def own(*ticks):
        """Of the run's only process, whose name is as bad as names get."""
        fields = " ".join(["S", *["1"] * 10, *map(str, ticks), "20"])
        (tmp_path / "proc" / "1" / "stat").write_text(f"1 (a) b (c) {fields}\n")

    def told(ticks, stalled_us=None, took_s=4.0, took=(0, 0, 0, 0)):
        own(5, 5, 5, 5)
        (tmp_path / "stat").write_text("cpu  7 7 7 7 7 7 7 7 0 0\n")
        monkeypatch.setattr(pressure.time, "monotonic", lambda: 100.0)
        if stalled_us is not None:
            (tmp_path / "cpu").write_text("some avg10=1.00 avg60=1.00 avg300=1.00 total=500\n")
        since = Since()
        own(*(5 + each for each in took))
        (tmp_path / "stat").write_text(f"cpu  {' '.join(str(7 + n) for n in ticks)} 0 0\n")
        if stalled_us is not None:
            (tmp_path / "cpu").write_text(f"some avg10=1.00 total={500 + stalled_us}\nfull total=0")
        monkeypatch.setattr(pressure.time, "monotonic", lambda: 100.0 + took_s)
        return since.pressure()

    return told


def test_a_process_that_gives_way_is_busy_too(after):
    user, nice, system, idle, iowait, irq, softirq, steal = 100, 390, 100, 8, 2, 50, 50, 100
    ticks = (user, nice, system, idle, iowait, irq, softirq, steal)
    found = after(ticks, stalled_us=3_000_000)
    assert found == Pressure(10 / 800, 590 / 800, 100 / 800, 0.75)


def test_what_the_run_and_its_children_that_ended_took_is_no_others(after):
    ticks = (300, 50, 100, 250, 0, 0, 100, 0)
    assert after(ticks, took=(100, 50, 200, 20)).cpu_others_share == 80 / 800
    assert after(ticks, took=(300, 100, 40, 20)).cpu_others_share == 0.0  # ticks are samples


def test_without_stalls_the_rest_is_told_and_of_a_short_time_nothing(after):
    ticks = (100, 0, 0, 300, 0, 0, 0, 0)
    assert after(ticks) == Pressure(0.75, 0.25, 0.0, None)
    assert after(ticks, took_s=1.0) == Pressure()


def test_this_machine_tells(monkeypatch):
    monkeypatch.setattr(pressure, "SHORTEST_S", 0.0)
    since = Since()
    sum(range(3_000_000))
    found = since.pressure()
    assert found.cpu_idle_share is not None and 0 <= found.cpu_idle_share <= 1


INSIDE = r"""
import os, subprocess, sys, time
from harness.emulation.pressure import Since

BUSY = "import time; end = time.monotonic() + float(%r)\nwhile time.monotonic() < end: pass"
since = Since()
print("began", flush=True)
subprocess.run([sys.executable, "-c", BUSY % 1.0], check=True)
left = subprocess.Popen([sys.executable, "-c", BUSY % 60])
time.sleep(2.5)
own = sum(os.times()[:4]) + float(open(f"/proc/{left.pid}/schedstat").read().split()[0]) / 1e9
print(since.pressure().cpu_others_share, own / (os.cpu_count() * 3.6))
"""


@pytest.mark.network
def test_processes_outside_of_a_namespace_are_others_and_those_inside_are_not():
    inside = command(sys.executable, "-c", INSIDE)
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "began\n"
        began_s, began_ticks = time.monotonic(), sum(os.times()[:2])
        while process.poll() is None:
            sum(range(100_000))
        took_s, busy_s = time.monotonic() - began_s, sum(os.times()[:2]) - began_ticks
        others, own = map(float, process.stdout.read().split())
    assert 0.8 * busy_s / (took_s * (os.cpu_count() or 1)) <= others <= 1.1 - own
