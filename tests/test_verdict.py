"""The verdict: every reason not to believe a run is found, and nothing else."""

import pytest

from harness import verdict
from harness.records import TABLES, Evaluation, Events, Step, Table
from harness.settings import Settings

SENT = 1_000_000


@pytest.fixture
def run_dir(tmp_path):
    """Two ranks, three steps, one evaluation: nothing wrong."""
    for name in TABLES:
        Table(tmp_path, name).header()
    steps = Table(tmp_path, "steps.csv")
    for step in range(3):
        for rank in range(2):
            steps.append(Step(step, rank, 2.0 * (step + 1), 0.5, 8, 1.0, 0.1, 1.0, 0.9,
                              SENT, SENT, 2 * SENT, 0.5, "{}"))  # fmt: skip
    Table(tmp_path, "evaluations.csv").append(Evaluation(3, 6.0, "accuracy", 0.9))
    return tmp_path


def judge(run_dir, compute="paced", seen=3 * SENT * 1.05, overruns=0, drifted=False, **proof):
    for rank in range(2):
        Events(run_dir).append(
            "rank_finished", 6.0, rank=rank, overruns=overruns, drifted=drifted, steps=1000
        )
    settings = Settings({"workers_per_node": 1, "emulation": {"compute": compute}})
    passed = {"up0": seen, "up1": seen, "down0": seen, "down1": seen}
    return verdict.summarize(run_dir, settings, {"probe": [], "readback": []} | proof, passed)


def test_a_good_run_is_valid_and_its_numbers_are_right(run_dir):
    summary = judge(run_dir)
    assert summary["valid"] and summary["reasons"] == []
    assert summary["final"] == {"accuracy": 0.9}
    assert summary["time_s"] == 6.0 and summary["steps"] == 3
    assert summary["throughput"] == pytest.approx(3 * 2 * 8 / 6.0)
    assert summary["mean_density"] == 0.5 and summary["sent_bytes"] == 6 * SENT
    assert summary["proof"]["sent_bytes_by_node"] == {0: 3 * SENT, 1: 3 * SENT}


BAD_PROBE = {"link": "up1", "measured_mbit": 50.0, "expected_mbit": 95.6, "ok": False}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seen": 2 * SENT}, "a path around it"),
        ({"seen": 40 * SENT}, "other traffic"),
        ({"overruns": 20}, "longer than their paced time"),
        ({"drifted": True}, "weights differ"),
        ({"probe": [BAD_PROBE]}, "link up1 carried 50.0"),
        ({"readback": ["up0 is 3, intended 4"]}, "up0 is 3, intended 4"),
    ],
)
def test_each_reason_makes_a_run_invalid(run_dir, change, said):
    summary = judge(run_dir, **change)
    assert not summary["valid"]
    assert said in " ".join(summary["reasons"])


def test_overruns_count_only_where_computation_is_paced(run_dir):
    assert judge(run_dir, compute="measured", overruns=20)["valid"]
