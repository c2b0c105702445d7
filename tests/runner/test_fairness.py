"""Fairness: every method and seed of a comparison trains over the same conditions."""

import json

import pytest

from tests.launching import harness, runs

pytestmark = pytest.mark.launch
FLUCTUATING = ("workers=2", "steps=20", "model=convnet", "dataset=digits",
               "emulation.compute=replay", "network_seed=0", "profile=fluctuating",
               "profile.low_mbit=20", "profile.high_mbit=200", "profile.min_s=0.1",
               "profile.max_s=0.3", "network.update_s=0.025")  # fmt: skip


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two runs that differ in method, seed, traffic and speed."""
    results = tmp_path_factory.mktemp("results")
    for overrides in (
        ("method=allreduce", "seed=1"),
        ("method=topk", "controller.density=0.001", "seed=2"),
    ):
        harness(*FLUCTUATING, *overrides, results=results)  # a busy machine makes it invalid only
    found = runs(results)
    assert len(found) == 2
    return found


def told(run) -> list[tuple[float, str]]:
    """When the plan of a run changed, and what the links were to be from then on."""
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    changes = [line for line in lines if line["event"] == "conditions"]
    return [(change["planned_s"], json.dumps(change["links"])) for change in changes]


def test_two_methods_and_seeds_are_given_the_same_network_byte_for_byte(compared):
    first, second = map(told, compared)
    end_s = min(first[-1][0], second[-1][0])
    shared = [[change for change in plan if change[0] <= end_s] for plan in (first, second)]
    assert end_s >= 1.0 and len(shared[0]) >= 10
    assert shared[0] == shared[1]


def test_the_plan_is_the_profiles_and_its_times_are_on_a_fixed_grid(compared):
    update_s = 0.025
    for run in compared:
        moments = [planned_s / update_s for planned_s, _ in told(run)]
        assert moments == pytest.approx([round(moment) for moment in moments])
        assert moments == sorted(set(moments))
