"""plan=true: what runs would take is what they take, and nothing is left or started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import plan
from harness.analysis import load
from harness.preview import composed
from harness.settings import BadSetting
from tests.launching import harness
from tests.simulate.runs import simulated

SMALL = ("model=convnet", "dataset=digits", "model.width=8", "report=false")
FREE = ("network=simulated", "network.compress_scale=0", "emulation.compute=paced")
COMPRESSORS = sorted(path.stem for path in Path("conf/compressor").glob("*.yaml"))


def settings_of(*overrides: str):
    settings, _ = composed([*SMALL, *overrides])
    plan.check(settings)
    return settings


def took(run: Path):
    rows = load.steps(run)
    return rows.time_s.max(), rows[rows["rank"] == 0].sent_bytes.sum()


def test_a_short_run_takes_what_was_predicted(tmp_path):
    asked = ("steps=6", "workers=3", "method=randomk_0.1", "profile=degrading", *FREE)
    found = plan.predict(settings_of(*asked))
    time_s, sent = took(simulated(tmp_path / "run", *asked))
    assert (found.time_s, found.sent_bytes) == (pytest.approx(time_s), pytest.approx(sent))
    assert found.steps == 6 and found.real_s is None
    assert found.step_s == pytest.approx(found.compute_s + found.exposed_s)
    assert found.samples_per_s == pytest.approx(6 * 3 * 16 / time_s)


@pytest.mark.parametrize("profile", ["fluctuating", "square"])
def test_a_long_run_is_seen_all_over_its_profile(tmp_path, profile):
    asked = ("steps=600", "workers=4", f"profile={profile}", *FREE, "emulation.compute=replay")
    found = plan.predict(settings_of(*asked))
    time_s, sent = took(simulated(tmp_path / "run", *asked, "network.alike=true"))
    assert found.time_s == pytest.approx(time_s, rel=0.15) and found.steps == 600
    assert found.sent_bytes == pytest.approx(sent)


def test_a_real_network_is_predicted_by_its_own_conditions():
    asked = ("steps=4", "workers=4", "emulation.compute=paced", "emulation.dilation=5")
    star = settings_of(*asked, "network=netns", "network.update_s=0.5", "network.queue_ms=20")
    known = plan.stand_in(star)
    assert known["network.queue_ms"] == 20
    costs = known.build("network").costs(known.build("profile"), 4, 1, dilation=5)
    assert costs.conditions.update_s == 0.1  # emulated
    trunk = settings_of(*asked, "network=dumbbell", "network.left=1")
    assert plan.stand_in(trunk)["network.left"] == 1
    found = plan.predict(star)
    assert found.real_s == pytest.approx(5 * found.time_s)


def test_computation_that_is_measured_is_measured_here():
    asked = settings_of("steps=3", "workers=2", "emulation.compute=measured", "profile=static")
    times = plan.times_here(asked)
    assert times["forward_s"] > 0 and times["backward_s"] > 0
    found = plan.predict(asked, times)
    assert found.compute_s == pytest.approx(times["forward_s"] + times["backward_s"])


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_every_compressor_can_be_planned(compressor):
    asked = ("steps=3", "workers=4", "emulation.compute=paced", "controller.agree=min")
    found = plan.predict(settings_of(*asked, f"compressor={compressor}", "optimizer.momentum=0"))
    assert found.sent_bytes > 0 and found.exposed_s > 0
    assert found.time_s >= 3 * found.compute_s


def test_epochs_without_data_cannot_be_planned(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    asked = ("dataset=cifar10", "steps=null", "epochs=2", "emulation.compute=paced")
    settings, _ = composed(["model=resnet20", *asked])
    with pytest.raises(BadSetting, match="plan needs steps=N"):
        plan.check(settings)


def test_pipelines_are_not_planned():
    with pytest.raises(BadSetting, match="plan must be false with parallel=pipeline"):
        settings_of("parallel=pipeline", "accumulate=4", "steps=2")


def test_runs_that_differ_in_seeds_alone_are_predicted_once():
    found = plan.Plan()
    for rate in (50, 100):
        for seed in (0, 1, 2):
            asked = ("steps=2", f"seed={seed}", f"profile.rate_mbit={rate}", "method=randomk_0.1")
            found.add(settings_of(*asked, *FREE))
    assert [count for _, count, _ in found.settings()] == [3, 3]
    assert found.apart() == ["rate_mbit 50", "rate_mbit 100"]


def test_kernels_are_compiled_before_anything_is_timed():
    """In a process of its own, where nothing is compiled or loaded yet."""
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["cold", "warm"], done.stdout + done.stderr


COLD = """
from compressors import kernels
from harness import plan
from harness.preview import composed
from harness.simulate.workers import SimulatedWorkers

def told():
    print("warm" if kernels._loaded.cache_info().currsize else "cold")

begin, seen = SimulatedWorkers.begin, []
def begins(workers, time_s):
    if not seen:
        seen.append(told())
    begin(workers, time_s)

SimulatedWorkers.begin = begins  # from here on what compression takes is measured
told()
asked = ["model=convnet", "dataset=digits", "emulation.compute=paced", "method=topk_0.1", "steps=1"]
plan.predict(composed(asked)[0])
"""


@pytest.mark.launch
def test_a_sweep_is_predicted_and_nothing_is_left(tmp_path):
    results = tmp_path / "results"
    asked = ("-m", "plan=true", "method=allreduce,topk_0.1", "seed=0,1", "steps=50")
    before = set(os.listdir("/tmp"))
    done = harness(*asked, "emulation.compute=paced", results=results)
    assert done.returncode == 0, done.stderr
    for said in ("allreduce", "topk_0.1", "4 runs", "of this machine", "nothing was run"):
        assert said in " ".join(done.stdout.split()), done.stdout
    assert not results.exists()
    left = {name for name in set(os.listdir("/tmp")) - before if name.startswith("gradnet-plan-")}
    assert not left
