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


AUDIT = {"cpu_idle_share": 0.4, "carried_over_allowed": 1.0, "off_plan_share": 0.0}
AUDIT |= {"late_ms_p99": 5.0}
GOOD = {"probe": [], "readback": [], "round_trips": [], "audit": AUDIT, "flows": []}
GOOD |= {"ceiling": {"needed_mbit": 400.0, "carried_mbit": 800.0}}


def judge(run_dir, compute="paced", seen=3 * SENT * 1.05, overruns=0, drifted=False, **proof):
    for rank in range(2):
        Events(run_dir).append(
            "rank_finished", 6.0, rank=rank, overruns=overruns, drifted=drifted, steps=1000
        )
    network = {"update_s": 0.1}
    settings = Settings(
        {"workers_per_node": 1, "emulation": {"compute": compute}, "network": network}
    )
    passed = {"up0": seen, "up1": seen, "down0": seen, "down1": seen}
    return verdict.summarize(run_dir, settings, GOOD | proof, passed)


def test_a_good_run_is_valid_and_its_numbers_are_right(run_dir):
    summary = judge(run_dir)
    assert summary["valid"] and summary["reasons"] == []
    assert summary["final"] == {"accuracy": 0.9}
    assert summary["time_s"] == 6.0 and summary["steps"] == 3
    assert summary["throughput"] == pytest.approx(3 * 2 * 8 / 6.0)
    assert summary["mean_density"] == 0.5 and summary["sent_bytes"] == 6 * SENT
    assert summary["proof"]["sent_bytes_by_node"] == {0: 3 * SENT, 1: 3 * SENT}


BAD_TRIP = {"name": "0-1", "planned_ms": 40.0, "measured_ms": 9.0, "ok": False}
BAD_PROBE = {"link": "up1", "measured_mbit": 50.0, "expected_mbit": 95.6, "ok": False}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seen": 2 * SENT}, "a path around it"),
        ({"seen": 40 * SENT}, "other traffic"),
        ({"overruns": 20}, "longer than their paced time"),
        ({"drifted": True}, "weights differ"),
        ({"probe": [BAD_PROBE]}, "link up1 carried 50.0"),
        ({"round_trips": [BAD_TRIP]}, "round trip 0-1 took 9.0 ms"),
        ({"round_trips": [BAD_TRIP | {"measured_ms": None}]}, "round trip 0-1 took None ms"),
        ({"ceiling": {"needed_mbit": 401.0, "carried_mbit": 800.0}}, "carries 800 Mbit/s"),
        ({"audit": AUDIT | {"cpu_idle_share": 0.01}}, "idle for 1.0%"),
        ({"audit": AUDIT | {"carried_over_allowed": 1.2}}, "carried 1.200 x"),
        ({"audit": AUDIT | {"off_plan_share": 0.1}}, "10.0% of the link samples"),
        ({"audit": AUDIT | {"late_ms_p99": 101.0}}, "came 101 ms late"),
        ({"readback": ["up0 is 3, intended 4"]}, "up0 is 3, intended 4"),
    ],
)
def test_each_reason_makes_a_run_invalid(run_dir, change, said):
    summary = judge(run_dir, **change)
    assert not summary["valid"]
    assert said in " ".join(summary["reasons"])


def test_competing_flows_are_told_apart_from_a_path_around_and_from_strangers(run_dir):
    flow = {"pair": "0-1", "sent_bytes": 30 * SENT}
    assert judge(run_dir, seen=3.2 * SENT)["valid"]
    [reason] = judge(run_dir, seen=3.2 * SENT, flows=[flow])["reasons"]
    assert "node 0 sent" in reason and "a path around it" in reason
    reasons = judge(run_dir, seen=34 * SENT, flows=[flow])["reasons"]
    assert [reason.split()[:2] for reason in reasons] == [["node", "1"]]


def test_an_idle_machine_is_asked_for_only_where_computation_is_paced(run_dir):
    busy = AUDIT | {"cpu_idle_share": 0.0}
    assert judge(run_dir, compute="measured", audit=busy)["valid"]


def test_overruns_count_only_where_computation_is_paced(run_dir):
    assert judge(run_dir, compute="measured", overruns=20)["valid"]
