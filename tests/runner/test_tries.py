"""emulation.dilation=auto: a second try at a slower time exactly if load alone spoilt the first."""

import subprocess
import sys

import pytest

from harness.config.settings import BadSetting
from harness.records.run_directory import Events, read_events, read_json
from harness.runner import run, tries
from harness.runner.lateness import MOST_VALID_SHARE
from tests.test_settings import settings

LOOP = "while True: pass"


def summary(share, dilation=1.0, **checks):
    results = {"lateness": "does not hold", "pauses": "not needed: none", "bytes": "holds"} | checks
    return {"late_at_most_share": share, "dilation": dilation, "proof": {"checks": results}}


@pytest.mark.parametrize(
    ("share", "then"),
    [(None, None), (0.0, None), (0.05, None), (0.051, 2), (0.0938, 2), (0.1, 2), (0.1402, 4),
     (0.1682, 4), (0.2, 4), (0.21, 4), (0.9, 4)],  # of runs beside loops, and the limits
)  # fmt: skip
def test_the_least_dilation_that_brings_the_bound_to_5_percent_is_taken(share, then):
    assert tries.second_dilation(summary(share)) == then


def test_a_run_spoilt_by_more_than_load_is_not_tried_again():
    assert tries.second_dilation(summary(0.2, bytes="does not hold")) is None
    assert tries.second_dilation(summary(0.2, ends="could not be checked: no rank")) is None


def test_there_are_at_most_two_tries_and_one_on_one_processor(tmp_path):
    assert tries.first_dilation(1) == 4 and tries.first_dilation(2) == 1
    assert tries.dilation_of_try(tmp_path) in (1, 4)
    assert tries.second_dilation(summary(0.2, dilation=4.0)) is None
    Events(tmp_path).append("first_try", then=2.0, first={})
    assert tries.dilation_of_try(tmp_path) == 2


def test_what_the_runner_chooses_is_no_part_of_what_is_run():
    auto = settings("emulation.dilation=auto", "emulation.compute=replay", "model=mlp_as_resnet20")
    assert auto.run(2.0).emulation.dilation == 2 and auto.run().emulation.dilation == 1
    assert auto["emulation.dilation"] == "auto"


@pytest.mark.parametrize("more", [
    ("emulation.compute=measured",),
    ("network=host", "network.machines=2", "network.machine=0", "network.master=127.0.0.1"),
])  # fmt: skip
def test_where_it_cannot_choose_a_number_is_asked_for(more):
    with pytest.raises(BadSetting, match=r"emulation.dilation must be a number .*got 'auto'"):
        settings("emulation.dilation=auto", "emulation.compute=replay", "model=mlp_as_resnet20",
                 *more).run()  # fmt: skip


@pytest.mark.launch
@pytest.mark.long
def test_beside_loops_a_run_is_valid_or_tells_of_two_tries(tmp_path):
    asked = settings(
        "model=mlp_as_resnet20", "emulation.compute=replay", "emulation.dilation=auto", "workers=2",
        "steps=20", "profile=static", "profile.rate_mbit=50", f"results={tmp_path}",
    )  # fmt: skip
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(2)]
    try:
        outcome = run.perform(asked)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert outcome.state in ("succeeded", "invalid") and outcome.run_dir == asked.run_dir()
    found = read_json(outcome.run_dir / "summary.json")
    assert found["dilation"] == read_json(outcome.run_dir / "environment.json")["dilation"]
    assert [outcome.run_dir] == [path for path in outcome.run_dir.parent.iterdir()]
    tried = [event for event in read_events(outcome.run_dir) if event["event"] == "first_try"]
    if tried:
        [told] = tried
        assert told["then"] == found["dilation"] in (2, 4) and told["first"]["dilation"] == 1
        assert told["first"]["late_at_most_share"] > MOST_VALID_SHARE
    else:
        assert found["dilation"] in (1, 4) and tries.second_dilation(found) is None
