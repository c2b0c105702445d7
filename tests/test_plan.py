"""plan=true: what runs would take is what they take, and nothing is left or started."""

import os
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness import validation
from harness.config import scales, sweep
from harness.config.run import Run
from harness.config.scales import composed
from harness.config.search_path import choices
from harness.config.settings import Settings
from harness.predict import cost_estimate, plan
from harness.predict.cost_estimate import announced
from harness.reporting.analysis import load
from harness.virtual.network import Simulated, SimulatedDumbbell
from tests.launching import afresh, harness
from tests.virtual.runs import simulated

SMALL = ("model=convnet", "dataset=digits", "model.width=8", "report=false")
FREE = ("network=simulated", "network.compress_scale=0", "emulation.compute=paced")
EXPERIMENTS = list(choices("experiment"))
SCALES = ("laptop", "paper")
COMPRESSORS = list(choices("compressor"))


def run_of(*overrides: str) -> Run:
    return checked(composed([*SMALL, *overrides])[0])


def checked(settings: Settings) -> Run:
    run = settings.run()
    plan.check(run)
    return run


def took(run: Path):
    rows = load.steps(run)
    return rows.time_s.max(), rows[rows["rank"] == 0].sent_bytes.sum()


def test_a_short_run_takes_what_was_predicted(tmp_path):
    asked = ("steps=6", "workers=3", "method=topk", "compressor=randomk", "controller.density=0.1",
             "profile=degrading", *FREE)  # fmt: skip
    found = plan.predict(run_of(*asked))
    time_s, sent = took(simulated(tmp_path / "run", *asked))
    assert (found.time_s, found.sent_bytes) == (pytest.approx(time_s), pytest.approx(sent))
    assert found.steps == 6 and found.real_s is None
    assert found.step_s == pytest.approx(found.compute_s + found.exposed_s)
    assert found.samples_per_s == pytest.approx(6 * 3 * 16 / time_s)


@pytest.mark.parametrize("profile", ["fluctuating", "square"])
def test_a_long_run_is_seen_all_over_its_profile(tmp_path, profile):
    asked = ("steps=600", "workers=4", f"profile={profile}", *FREE, "emulation.compute=replay")
    found = plan.predict(run_of(*asked))
    time_s, sent = took(simulated(tmp_path / "run", *asked, "network.alike=true"))
    assert found.time_s == pytest.approx(time_s, rel=0.15) and found.steps == 600
    assert found.sent_bytes == pytest.approx(sent)


def test_a_real_network_is_predicted_by_its_own_conditions():
    asked = ("steps=4", "workers=4", "emulation.compute=paced", "emulation.dilation=5")
    star = run_of(*asked, "network=netns", "network.update_s=0.5", "network.queue_ms=20")
    known = plan.stand_in(star)
    assert isinstance(known.network, Simulated) and known.network.queue_ms == 20
    costs = known.network.costs(known.profile, 4, 1, dilation=5)
    assert costs.link_states.update_s == 0.1  # emulated
    trunk = run_of(*asked, "network=dumbbell", "network.left=1")
    twin = plan.stand_in(trunk).network
    assert isinstance(twin, SimulatedDumbbell) and twin.left == 1
    found = plan.predict(star)
    assert found.real_s == pytest.approx(5 * found.time_s)


OVER_PACKETS = ("network=netns", "workers=8", "steps=20", "emulation.compute=paced")


def added(*overrides: str) -> float | None:
    return cost_estimate.added_by_machine(run_of(*OVER_PACKETS, *overrides))


@pytest.mark.parametrize("method", ["allreduce", "topk", "dc2_da2"])
def test_a_machine_adds_less_the_slower_emulated_time_goes(method):
    shares = [added(f"method={method}", f"emulation.dilation={each}") for each in (0.1, 1, 10, 100)]
    assert shares == sorted(shares, reverse=True) and shares[-1] == pytest.approx(0, abs=1e-9)
    assert shares[0] > 5 * shares[1] > 0


def test_what_is_virtual_or_measured_is_not_said_to_be_of_the_machine():
    assert added("network=simulated") is None
    assert added("emulation.compute=measured") is None
    assert added("emulation.dilation=0.5") > 0


def test_a_plan_and_a_sweep_say_what_dilation_would_do():
    quick = composed([*SMALL, *OVER_PACKETS, "method=topk", "emulation.dilation=0.1"])[0]
    said = cost_estimate.host_overhead([checked(quick)])
    assert "topk" in said and "network=calibrated" in said
    [dilation] = re.findall(r"emulation\.dilation=([\d.]+)\.", said)
    slower = composed([*SMALL, *OVER_PACKETS, "method=topk", f"emulation.dilation={dilation}"])[0]
    assert 0.01 < cost_estimate.added_by_machine(slower.run()) < 0.1
    slowest = composed([*SMALL, *OVER_PACKETS, "emulation.dilation=50"])[0]
    assert cost_estimate.host_overhead([checked(slowest)]) == ""
    before = announced([quick, slowest])
    assert before.said.startswith("2 runs") and before.added == said
    assert announced([slowest, slowest]).added == ""


def test_computation_that_is_measured_is_measured_here():
    asked = run_of("steps=3", "workers=2", "emulation.compute=measured", "profile=static")
    times = plan.times_here(asked)
    assert times.forward_s > 0 and times.backward_s > 0
    found = plan.predict(asked, times)
    assert found.compute_s == pytest.approx(times.forward_s + times.backward_s)


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_every_compressor_can_be_planned(compressor):
    asked = ("steps=3", "workers=4", "emulation.compute=paced", "controller.agree=min")
    found = plan.predict(run_of(*asked, f"compressor={compressor}", "optimizer.momentum=0"))
    assert found.sent_bytes > 0 and found.exposed_s > 0
    assert found.time_s >= 3 * found.compute_s


def test_workers_that_meet_in_pairs_take_what_was_predicted(tmp_path):
    asked = ("method=noloco", "parallel.h=2", "steps=8", "workers=4", *FREE)
    found = plan.predict(run_of(*asked))
    time_s, sent = took(simulated(tmp_path / "run", *asked))
    assert (found.time_s, found.sent_bytes) == (pytest.approx(time_s), pytest.approx(sent))


PLANNED = {f"method={each}" for each in choices("method")} - {"method=dct_hybrid"}
PLANNED |= {"method=dct_hybrid parallel=pipeline", "network=dumbbell", "network=simulated_dumbbell"}
PLANNED |= {"network=simulated_wan", "network=simulated_wan method=noloco"}


@pytest.mark.parametrize("words", sorted(PLANNED))
def test_what_can_be_run_is_not_refused_for_what_a_plan_sets_itself(words):
    settings = composed([*SMALL, "steps=3", "workers=4", *words.split()])[0]
    plan.check(validation.checked(settings))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_planned_at_its_scales_without_its_data(name, monkeypatch, tmp_path):
    """One of the runs that say the same keys, at one scale where there is no other."""
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    for scale in scales_of(name):
        for settings in first_of_each_line(name, scale):
            checked(settings)
            assert (settings["experiment"], settings["scale.name"]) == (name, scale)
        found = plan.predict(replace(settings.run(), steps=2))
        assert found.time_s > 0 and found.compute_s > 0


def scales_of(name: str) -> tuple[str, ...]:
    """One for what only stands in for something, and for what is the same at both."""
    told, depends = [], False
    with sweep.hydra():
        for scale in SCALES:
            with suppress(sweep.OnlyAStandIn):
                config = sweep.load([f"+experiment={name}", f"scale={scale}"])
                found = sweep.plain_settings(config)
                told.append({key: of for key, of in found.config.items() if key != "scale"})
                depends |= scale == scales.PAPER and scales.may_depend_on_scale(config)
    both = bool(told[1:] and told[0] != told[1])
    assert depends or not both  # so that a command line which is the same at both is composed once
    return SCALES if both else SCALES[:1]


def first_of_each_line(name: str, scale: str) -> list[Settings]:
    with sweep.hydra():
        asked = [f"+experiment={name}", f"scale={scale}", "plan=true"]
        lines: dict[tuple[str, ...], list[str]] = {}
        for choice in sweep.choices(asked):
            keys = tuple(word.partition("=")[0] for word in choice)
            lines.setdefault(keys, choice)
        return [sweep.settings_of(choice) for choice in lines.values()]


@pytest.mark.parametrize(
    "names", [("activations=dct_mp",), ("method=dct_hybrid", "compressor.refresh=paper")]
)
def test_a_pipeline_takes_what_was_predicted_without_its_data(names, tmp_path, monkeypatch):
    """Replayed by its own program; of a static link any step is like the others."""
    asked = ("parallel=pipeline", "accumulate=4", "workers=4", "steps=100", *names)
    asked += ("network=simulated", "network.compress_scale=0", "emulation.compute=replay")
    time_s, sent = took(simulated(tmp_path / "run", *asked))
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path))
    found = plan.predict(run_of(*asked))
    rows = load.steps(tmp_path / "run")
    assert found.time_s == pytest.approx(time_s, rel=0.01) and found.steps == 100
    assert found.sent_bytes == pytest.approx(rows.sent_bytes.sum() / 4, rel=0.05)  # thresholds age
    assert found.samples_per_s == pytest.approx(100 * 2 * 4 * 16 / time_s, rel=0.01)


def test_a_split_model_takes_what_it_takes_uncut():
    asked = ("steps=4", "workers=2", *FREE)
    cut = run_of("parallel=split", "activations=dct_mp", *asked)
    assert plan.predict(cut) == plan.predict(run_of("method=allreduce", *asked))


def test_runs_that_differ_in_seeds_alone_are_predicted_once():
    found = plan.Plan()
    for rate in (50, 100):
        for seed in (0, 1, 2):
            asked = ("steps=2", f"seed={seed}", f"profile.rate_mbit={rate}", "method=topk",
                     "compressor=randomk", "controller.density=0.1")  # fmt: skip
            settings, _ = composed([*SMALL, *asked, *FREE])
            found.add(settings, checked(settings))
    assert [count for _, count, _ in found.settings()] == [3, 3]
    assert found.apart() == ["rate_mbit 50", "rate_mbit 100"]


def test_kernels_are_compiled_before_anything_is_timed():
    """In a process of its own, where nothing is compiled or loaded yet."""
    done = afresh([sys.executable, "-c", COLD], 120)
    assert done.stdout.split() == ["cold", "warm"], done.stdout + done.stderr


COLD = """
from compressors import kernels
from harness.predict import plan
from harness.config import sweep
from harness.config.scales import composed
from harness.virtual.workers import SimulatedWorkers

def told():
    print("warm" if kernels._known else "cold")

begin, seen = SimulatedWorkers.begin, []
def begins(workers, told_s=None):
    if not seen:
        seen.append(told())
    begin(workers, told_s)

SimulatedWorkers.begin = begins  # from here on what compression takes is measured
told()
asked = ["model=convnet", "dataset=digits", "emulation.compute=paced", "method=topk", "steps=1"]
plan.predict(composed(asked)[0].run())
"""


@pytest.mark.launch
def test_a_sweep_is_predicted_and_nothing_is_left(tmp_path):
    results, temporary = tmp_path / "results", tmp_path / "temporary"
    temporary.mkdir()
    asked = ("-m", "plan=true", "method=allreduce,topk", "seed=0,1", "steps=50")
    env = os.environ | {"TMPDIR": str(temporary)}
    done = harness(*asked, "emulation.compute=paced", results=results, env=env)
    assert done.returncode == 0, done.stderr
    for said in ("allreduce", "topk_0.01", "4 runs", "of this machine", "nothing was run"):
        assert said in " ".join(done.stdout.split()), done.stdout
    assert not results.exists() and not list(temporary.iterdir())
