"""Whole runs in virtual time: records, report, determinism, failures and interrupts."""

import json
import signal
from dataclasses import dataclass

import pandas as pd
import pytest
import torch

from compressors.base import Bucket, Reduced, Workers
from compressors.dense import Dense
from harness.config.settings import BadSetting
from harness.records import columns
from harness.records.run_directory import TABLES, read_events
from harness.reporting import report
from harness.reporting.analysis import load
from tests.launching import harness, runs, start, state, training, until
from tests.virtual.runs import DETERMINED, settings_of, simulated, weights

RUN = ("steps=8", "workers=4", "network.sample_s=0.02", "profile=fluctuating")
RUN += ("profile.min_s=0.1", "profile.max_s=0.2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("run") / "a", *RUN, *DETERMINED, "method=dc2_da2")


def test_a_run_directory_holds_what_a_real_one_does(run):
    for name, row in TABLES.items():
        assert tuple(pd.read_csv(run / name).columns) == (*columns.recorded(row),)
        assert len(pd.read_csv(run / name)) > 0
    assert state(run) == "succeeded"
    environment = json.loads((run / "environment.json").read_text())
    assert environment["network"]["simulated"] and environment["git"]["commit"]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["simulated"] and summary["valid"] and summary["steps"] == 8
    names = [event["event"] for event in read_events(run)]
    assert names.index("step_0") < names.index("conditions") < names.index("rank_finished")
    for name in ("model.pt", "rank0.pt", "rank3.pt", "manifest.json"):
        assert (run / "checkpoint" / name).stat().st_size > 0


def test_rates_raised_to_the_floor_are_announced_and_recorded(tmp_path):
    (tmp_path / "trace").write_text("0 5\n1 0.3\n2 6\n3 -\n4 0.2\n")
    recording = ("profile=cooked", f"profile.path={tmp_path}/trace", "profile.floor_mbit=0.5")
    said = [
        f"{tmp_path}/trace: 40 % of the samples were below 0.5 Mbit/s and play at it (floor_mbit)",
        f"{tmp_path}/trace: 20 % of the samples had no reading (no_reading=hold)",
    ]
    recording += ("profile.no_reading=hold",)
    asked = ("network=simulated", "model=convnet", "dataset=digits", "workers=2", "steps=1")
    done = harness(*asked, *recording, "emulation.compute=replay", results=tmp_path / "results")
    assert done.stdout.splitlines()[:2] == said
    [found] = runs(tmp_path / "results")
    assert json.loads((found / "environment.json").read_text())["recordings"] == said


def test_the_arithmetic_of_the_steps(run):
    steps = pd.read_csv(run / "steps.csv")
    for _, rows in steps.groupby("rank"):
        assert rows.step.tolist() == list(range(8))
        took_s = rows.time_s.diff().dropna().to_numpy()
        parts = (rows.compute_s + rows.exposed_s).to_numpy()[1:]
        assert took_s == pytest.approx(parts)  # compression is free, waiting is communication
    assert (steps.exposed_s <= steps.comm_s + 1e-12).all() and (steps.exposed_s > 0).all()
    assert (steps.compress_s == 0).all()
    assert steps.compute_s.to_numpy() == pytest.approx(0.06)
    assert steps.groupby("step").sent_bytes.nunique().max() <= 4


def test_bytes_through_the_links_are_those_that_were_sent(run):
    steps, links = pd.read_csv(run / "steps.csv"), pd.read_csv(run / "links.csv")
    assert set(links.link) == {f"{way}{node}" for way in ("up", "down") for node in range(4)}
    assert links.planned_mbit.nunique() > 2 and (links.planned_mbit == links.applied_mbit).all()
    for node in range(4):
        passed = links[links.link == f"up{node}"].bytes
        assert passed.is_monotonic_increasing
        sent = steps[steps["rank"] == node].sent_bytes.sum() / 0.956
        assert 0.5 * sent < passed.iloc[-1] <= sent  # the last sample is before the end


def test_the_same_run_again_has_the_same_records(run, tmp_path):
    again = simulated(tmp_path / "b", *RUN, *DETERMINED, "method=dc2_da2")
    for name in TABLES:
        assert (again / name).read_bytes() == (run / name).read_bytes(), name


def test_profiles_are_played_by_emulated_time(tmp_path):
    slow, fast = (
        simulated(tmp_path / name, *DETERMINED, "steps=4", "workers=2", *profile)
        for name, profile in {
            "slow": ("profile.rate_mbit=10",),
            "fast": ("profile=square", "profile.high_mbit=1000", "profile.low_mbit=10"),
        }.items()
    )
    times = [pd.read_csv(run / "steps.csv").groupby("step").time_s.max() for run in (slow, fast)]
    assert (times[1] < times[0]).all()
    comm_s = pd.read_csv(slow / "steps.csv").comm_s
    dense_bits = 8 * pd.read_csv(slow / "steps.csv").dense_bytes.iloc[0]
    assert comm_s.median() == pytest.approx(dense_bits / 0.956 / 10e6, rel=0.02)  # 2 workers


def test_replay_sends_the_same_bytes_without_training(tmp_path):
    asked = ("steps=3", "workers=3", "method=topk", "controller.density=0.1")
    trained = simulated(tmp_path / "trained", *asked, *DETERMINED)
    replayed = simulated(tmp_path / "replay", *asked, "emulation.compute=replay")
    sent = [pd.read_csv(run / "steps.csv").sent_bytes.tolist() for run in (trained, replayed)]
    assert sent[0] == sent[1]
    assert pd.read_csv(replayed / "steps.csv").loss.isna().all()
    assert not (replayed / "checkpoint").exists() and state(replayed) == "succeeded"


def test_measured_computation_and_compression_take_their_time(tmp_path):
    run = simulated(tmp_path / "run", "steps=4", "workers=2", "method=topk",
                    "controller.density=0.1", "emulation.compute=measured")  # fmt: skip
    steps = pd.read_csv(run / "steps.csv")
    assert (steps.compute_s > 0).all() and (steps.compress_s > 0).all()
    assert steps[steps.step > 0].compute_s.nunique() > 1
    given = simulated(tmp_path / "given", "steps=2", "workers=2", "method=topk",
                      "controller.density=0.1",
                      "+network.device.costs.other.element_ns=100")  # fmt: skip
    steps = pd.read_csv(given / "steps.csv")
    assert steps.compress_s.to_numpy() == pytest.approx(100e-9 * steps.dense_bytes / 4)


def test_without_overlap_nothing_is_sent_before_backward_ends(tmp_path):
    asked = ("steps=3", "workers=2", "bucket_mb=0.01", *DETERMINED)
    hidden, bare = (
        simulated(tmp_path / overlap, *asked, f"overlap={overlap}")
        for overlap in ("per_bucket", "after_backward")
    )
    for run, exposed in ((hidden, False), (bare, True)):
        steps = pd.read_csv(run / "steps.csv")
        assert (abs(steps.exposed_s - steps.comm_s) < 1e-9).all() == exposed


def test_a_worker_that_fails_fails_the_run_with_its_traceback(tmp_path):
    run = simulated(tmp_path / "run", "steps=5", "workers=2", "optimizer.lr=1e20", *DETERMINED)
    told = json.loads((run / "status.json").read_text())
    assert told["state"] == "failed" and "rank 0: FloatingPointError" in told["error"]
    [report_] = [event for event in read_events(run) if event["event"] == "rank_failed"]
    assert report_["rank"] == 0 and "Traceback" in report_["traceback"]


def test_runs_are_read_compared_and_drawn(run, tmp_path, capsys):
    [found] = load.runs(run).itertuples()
    assert found.left_out == "" and found.method == "dc2_da2"
    report.report(run, out=tmp_path / "report")
    said = capsys.readouterr().out
    assert "simulated" in said
    for name in ("quality_time", "network", "links_time", "breakdown"):
        assert (tmp_path / "report" / f"{name}.svg").stat().st_size > 0


@pytest.mark.launch
def test_the_command_line_runs_skips_and_is_interrupted(tmp_path):
    asked = ("network=simulated", "model.width=8", "workers=2")
    for expected in ("succeeded: ", "skipped, succeeded before: "):
        done = harness(*asked, "steps=2", results=tmp_path)
        assert done.returncode == 0 and expected in done.stdout + done.stderr, done.stderr
    process = start(*asked, "steps=1000000", results=tmp_path)
    try:
        until(lambda: training(tmp_path, steps=5), "five steps")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    states = sorted(map(state, runs(tmp_path)))
    assert states == ["interrupted", "succeeded"]


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_ended(tmp_path):
    """Each worker at its own time: noise lets them end apart."""
    asked = ("workers=3", "method=dc2_da2", *DETERMINED, "model=resnet20", "model.depth=8")
    asked += ("network.noise=0.1", "network.latency_noise=0.5")
    whole = simulated(tmp_path / "whole", "steps=6", *asked)
    begun = simulated(tmp_path / "begun", "steps=3", *asked)
    gone_on = simulated(tmp_path / "on", "steps=6", f"resume_from={begun}", *asked)
    steps, expected = (pd.read_csv(run / "steps.csv") for run in (gone_on, whole))
    expected_rest = expected[expected.step >= 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(steps, expected_rest, check_exact=True)
    assert (steps.groupby("step").time_s.nunique() == 3).all()
    for name, value in weights(gone_on).items():
        assert torch.equal(value, weights(whole)[name]), name
    assert "resumed" in [event["event"] for event in read_events(gone_on)]
    links = pd.read_csv(gone_on / "links.csv")
    assert len(links) == 0 or links.time_s.min() >= expected[expected.step == 2].time_s.min()


def test_one_worker_may_stand_for_all_where_nothing_is_trained(tmp_path):
    asked = ("steps=3", "method=topk", "controller.density=0.1", "emulation.compute=replay",
             "network.compress_scale=0")  # fmt: skip
    each, one = (
        simulated(tmp_path / f"{alike}", "workers=3", f"network.alike={alike}", *asked)
        for alike in (False, True)
    )
    assert (each / "steps.csv").read_text() == (one / "steps.csv").read_text()
    many = simulated(tmp_path / "many", "workers=1024", "network.alike=true", *asked)
    steps = pd.read_csv(many / "steps.csv")
    assert len(steps) == 3 * 1024 and steps.groupby("step").sent_bytes.nunique().max() == 1


def test_workers_that_train_are_not_alike():
    with pytest.raises(BadSetting, match="network.alike must be false with .*compute=paced"):
        settings_of("network.alike=true", "emulation.compute=paced", "steps=1")


@dataclass
class Drifts(Dense):
    """Another mean on one worker."""

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        reduced = super().reduce(bucket, density, workers)
        reduced.mean[0] += workers.rank == 1
        return reduced


def test_workers_that_get_other_means_make_a_run_invalid(tmp_path):
    asked = ("workers=3", "steps=2", "method=allreduce", *DETERMINED)
    run = simulated(tmp_path / "run", *asked, f"compressor._target_={__name__}.Drifts")
    told = json.loads((run / "status.json").read_text())
    assert told["state"] == "invalid" and "weights differ" in told["error"]
