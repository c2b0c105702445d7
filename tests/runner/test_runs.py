"""Whole runs on real shaped packets: records, resume, failures, and nothing left behind."""

import json
import re
import subprocess

import pandas as pd
import pytest

from harness.records import columns
from harness.records.run_directory import PACKET_TABLES, TABLES
from tests.launching import (
    ROOT,
    TINY,
    harness,
    runs,
    state,
    worked,
)

pytestmark = pytest.mark.launch


def table(run, name):
    return pd.read_csv(run / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One real training run: digits, top-k with error feedback, paced, evaluated twice."""
    results = tmp_path_factory.mktemp("trained")
    done = harness("workers=2", "steps=20", "eval_every=10", "method=topk",
                   "controller.density=0.1", "model=mlp_as_resnet20", "emulation.compute=paced",
                   "emulation.dilation=10", "profile=fluctuating", "profile.low_mbit=100",
                   "profile.high_mbit=400", "profile.min_s=0.05", "profile.max_s=0.1",
                   results=results)  # fmt: skip
    [run] = runs(results)
    assert worked(done, run), done.stdout + done.stderr
    return run


def test_a_run_directory_holds_what_the_design_promises(trained):
    for name, row in (TABLES | PACKET_TABLES).items():
        assert tuple(table(trained, name).columns) == (*columns.recorded(row),)
        assert len(table(trained, name)) > 0
    for name in ("config.yaml", "status.json", "environment.json", "summary.json", "events.jsonl"):
        assert (trained / name).stat().st_size > 0
    assert (trained / "checkpoint" / "model.pt").stat().st_size > 0
    for rank in range(2):
        assert (trained / "logs" / f"rank{rank}.log").exists()
    assert state(trained) in ("succeeded", "invalid")  # invalid: on a busy machine


def test_environment_and_proof_are_written_before_step_0(trained):
    environment = json.loads((trained / "environment.json").read_text())
    assert environment["git"]["commit"] and environment["versions"]["torch"]
    assert environment["dilation"] == 10
    assert all(probe["ok"] for probe in environment["proof"]["probe"])
    events = [json.loads(line) for line in (trained / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names.index("network_up") < names.index("step_0")


def test_the_arithmetic_of_the_steps(trained):
    steps = table(trained, "steps.csv")
    assert sorted(set(steps["rank"])) == [0, 1]
    for _, rows in steps.groupby("rank"):
        assert rows["step"].tolist() == list(range(20))
        assert rows["time_s"].is_monotonic_increasing
    assert (steps["exposed_s"] <= steps["comm_s"] + 1e-9).all()
    assert (steps["compute_s"] > 0).all() and (steps["compress_s"] > 0).all()
    assert (steps["samples"] == 16).all()
    assert (steps["density"] == 0.1).all()
    assert steps["dense_bytes"].nunique() == 1
    # Exact top-k: 8 bytes for each of k values, and one int64 per worker for the lengths.
    k_bytes = 8 * 0.1 * steps["dense_bytes"] / 4
    lengths_bytes = 2 * (2 - 1) * 8
    assert (steps["sent_bytes"] <= k_bytes + 8 * lengths_bytes).all()
    assert (steps["sent_bytes"] >= 0.98 * k_bytes).all()
    assert (steps["received_bytes"] == steps["sent_bytes"]).all()


def test_every_collective_is_kept_and_its_bytes_are_those_of_the_steps(trained):
    kept, steps = table(trained, "collectives.csv"), table(trained, "steps.csv")
    assert (kept["start_s"] < kept["end_s"]).all() and kept["end_s"].max() <= steps["time_s"].max()
    for way in ("sent_bytes", "received_bytes"):
        assert kept.groupby("rank")[way].sum().equals(steps.groupby("rank")[way].sum())
    delivery = json.loads((trained / "summary.json").read_text())["proof"]["delivery"]
    assert delivery["communicated_s"] > 0


def test_evaluations_stand_on_the_training_clock(trained):
    evaluations, steps = table(trained, "evaluations.csv"), table(trained, "steps.csv")
    accuracy = evaluations[evaluations["metric"] == "accuracy"]
    assert accuracy["step"].tolist() == [10, 20]
    for row in accuracy.itertuples():
        at = steps[(steps["step"] == row.step - 1) & (steps["rank"] == 0)]["time_s"].item()
        following = steps[(steps["step"] == row.step) & (steps["rank"] == 0)]["time_s"]
        assert at <= row.time_s and (row.time_s <= following).all()
    assert accuracy["value"].between(0, 1).all()


def test_the_profile_was_played_on_both_directions_of_every_link(trained):
    links = table(trained, "links.csv")
    assert set(links["link"]) == {"up0", "down0", "up1", "down1"}
    assert links["planned_mbit"].between(100, 400).all()
    assert links["planned_mbit"].nunique() > 2  # two nodes, and changes
    for _, rows in links.groupby("link"):
        assert rows["bytes"].is_monotonic_increasing


def test_the_same_seed_gives_the_same_weights(trained, tmp_path):
    import torch

    config = (trained / "config.yaml").read_text()
    assert "seed: 0" in config
    overrides = (
        "workers=2", "steps=20", "eval_every=10", "method=topk", "controller.density=0.1",
        "model=mlp_as_resnet20",
        "emulation.compute=paced", "emulation.dilation=10", "profile.rate_mbit=1000",
    )  # fmt: skip
    done = harness(*overrides, results=tmp_path)
    [again] = runs(tmp_path)
    assert worked(done, again), done.stdout + done.stderr
    first, second = (
        torch.load(run / "checkpoint" / "model.pt", weights_only=True)["model"]
        for run in (trained, again)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_a_checkpoint_is_what_the_next_run_starts_from(trained, tmp_path):
    import torch

    saved = trained / "checkpoint" / "model.pt"
    standing_still = ("steps=1", "optimizer.lr=0", "optimizer.weight_decay=0")
    overrides = ("workers=2", "model=mlp_as_resnet20", f"initial_weights={saved}")
    done = harness(*overrides, *standing_still, results=tmp_path)
    [again] = runs(tmp_path)
    assert worked(done, again), done.stdout + done.stderr
    first, second = (
        torch.load(path, weights_only=True)["model"]
        for path in (saved, again / "checkpoint" / "model.pt")
    )
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(("overrides", "said"), [
    (["method=no_such"], ["no_such", "method", "--help method"]),
    (["method=topk", "controller.density=0.1", "controller.density=0"],
     ["controller", "(0, 1]", "0"]),
    (["method=topk", "controller.density=0.1", "controller.density=1.5"],
     ["controller", "(0, 1]", "1.5"]),
    (["workers=0"], ["workers", "[1, 100000]", "0"]),
    (["profile.rate_mbit=-5"], ["profile", "rate_mbit", "-5"]),
    (["stepz=3"], ["stepz"]),
    (["controller.densty=0.1"], ["densty"]),
    (["emulation.dilation=0"], ["emulation.dilation", "[0.001, 10000]", "0"]),
    (["emulation.compute=guessed"], ["emulation.compute", "paced", "guessed"]),
    (["workers=4", "workers_per_node=3"], ["workers_per_node", "divisor", "3"]),
    (["device=cuda", "workers=80"], ["device", "cpu or auto", "cuda"]),
    (["initial_weights=/nowhere/model.pt"], ["initial_weights", "/nowhere/model.pt"]),
    (["network.congestion_control=no_such"], ["congestion", "no_such"]),
])  # fmt: skip
def test_bad_input_names_key_value_and_range_and_starts_nothing(overrides, said, tmp_path):
    done = harness(*overrides, results=tmp_path)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    for word in said:
        assert word in text
    assert "Traceback" not in text
    if "congestion" not in said[0]:  # that one only the kernel can refuse
        assert runs(tmp_path) == []


def test_a_bad_value_stops_a_sweep_before_its_first_run(tmp_path):
    done = harness("-m", *TINY, "workers=2,0", results=tmp_path)
    assert done.returncode != 0 and "workers must be" in done.stdout + done.stderr
    assert runs(tmp_path) == []


def test_without_its_data_set_an_experiment_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADNET_DATA", str(tmp_path / "nowhere"))
    done = harness("+experiment=dc2_imagenet_dynamic", "scale=paper", results=tmp_path / "out")
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert str(tmp_path / "nowhere") in text and "train" in text and "scale=laptop" in text
    assert len(text.strip().splitlines()) <= 3
    assert runs(tmp_path / "out") == []


def test_a_sweep_skips_what_succeeded_and_redoes_the_rest(tmp_path):
    """In virtual time, where nobody on this machine can spoil a run."""
    sweep = ("-m", "workers=2", "steps=6", "network=simulated", "seed=0,1")
    assert harness(*sweep, results=tmp_path).returncode == 0
    first, second = runs(tmp_path)
    kept = (first / "status.json").read_text()
    status = json.loads((second / "status.json").read_text())
    (second / "status.json").write_text(json.dumps(status | {"state": "failed"}))
    done = harness(*sweep, results=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (first / "status.json").read_text() == kept
    assert state(second) == "succeeded"
    assert harness(*sweep, "rerun=true", results=tmp_path).returncode == 0
    assert (first / "status.json").read_text() != kept


def test_weights_that_drift_apart_make_a_run_invalid(tmp_path):
    done = harness(
        "workers=2", "steps=3", "profile.rate_mbit=500",
        "compressor._target_=tests.faults.DiffersByRank", results=tmp_path,
    )  # fmt: skip
    assert done.returncode != 0
    [run] = runs(tmp_path)
    assert state(run) == "invalid"
    summary = json.loads((run / "summary.json").read_text())
    assert not summary["valid"] and "weights differ" in " ".join(summary["reasons"])


def test_two_workers_share_a_node(tmp_path):
    done = harness(*TINY, "workers=4", "workers_per_node=2", results=tmp_path)
    [run] = runs(tmp_path)
    assert worked(done, run), done.stdout + done.stderr
    assert set(table(run, "links.csv")["link"]) == {"up0", "down0", "up1", "down1"}
    assert sorted(set(table(run, "steps.csv")["rank"])) == [0, 1, 2, 3]


def test_without_root_the_same_command_works(tmp_path):
    """In a user namespace where we are an ordinary user without capabilities."""
    ordinary = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    if subprocess.run([*ordinary, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    from tests.launching import command

    done = subprocess.run(
        [*ordinary, *command(*TINY, results=tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    [run] = runs(tmp_path)
    assert worked(done, run), done.stdout + done.stderr
    assert json.loads((run / "environment.json").read_text())["root"] is False


def test_the_log_of_a_run_is_quiet_about_success(tmp_path):
    done = harness(*TINY, results=tmp_path)
    [run] = runs(tmp_path)
    assert worked(done, run), done.stdout + done.stderr
    assert not re.search(r"warning|error", done.stderr, re.IGNORECASE)
