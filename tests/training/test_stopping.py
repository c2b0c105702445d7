"""A run ends at its last step, or, where asked, at the first evaluation that meets its target."""

import pandas as pd
import pytest

from harness.config.settings import BadSetting
from harness.engine.training.rest import StopSchedule
from harness.records.run_directory import read_json
from harness.validation import checked
from tests.launching import harness, runs, state
from tests.virtual.runs import settings_of, simulated

EARLY = ("steps=40", "eval_every=5", "target.value=0.2", "target.ends_run=true")


def test_every_so_many_steps_and_at_the_end() -> None:
    stops = StopSchedule(steps=7, eval_every=3, checkpoint_every=2)
    assert [done for done in range(1, 8) if stops.evaluates(done)] == [3, 6, 7]
    assert [done for done in range(1, 8) if stops.saves(done, stops.ends(done, {}))] == [2, 4, 6, 7]
    assert [done for done in range(1, 8) if stops.ends(done, {"accuracy": 1.0})] == [7]


def test_saved_at_the_end_alone_or_never() -> None:
    at_the_end, never = (
        StopSchedule(steps=4, eval_every=9, checkpoint_every=each) for each in (0, None)
    )
    assert [at_the_end.saves(done, done == 4) for done in range(1, 5)] == [False] * 3 + [True]
    assert not any(never.saves(done, done == 4) for done in range(1, 5))


@pytest.mark.parametrize(
    ("metric", "short", "met"), [("accuracy", 0.49, 0.5), ("perplexity", 0.51, 0.5)]
)
def test_a_target_is_met_from_below_or_from_above(metric: str, short: float, met: float) -> None:
    stops = StopSchedule(steps=9, eval_every=1, checkpoint_every=0, metric=metric, ends_at=0.5)
    assert not stops.ends(1, {}) and not stops.ends(1, {metric: short, "other": met})
    assert not stops.ends(1, {metric: float("nan")})
    assert stops.ends(1, {metric: met})


def test_a_run_in_virtual_time_ends_at_its_target(tmp_path) -> None:
    run = simulated(tmp_path / "a", "workers=2", *EARLY, "checkpoint_every=null")
    check_ended_at_target(run)
    assert not (run / "checkpoint").exists()


@pytest.mark.launch
def test_a_run_over_packets_ends_at_its_target(tmp_path) -> None:
    harness("workers=2", *EARLY, results=tmp_path)
    (run,) = runs(tmp_path)
    assert state(run) in ("succeeded", "invalid")  # invalid: on a busy machine
    check_ended_at_target(run)
    assert (run / "checkpoint" / "model.pt").is_file()


def check_ended_at_target(run) -> None:
    steps, seen = pd.read_csv(run / "steps.csv"), pd.read_csv(run / "evaluations.csv")
    done = read_json(run / "summary.json")["steps"]
    assert done < 40 and done % 5 == 0 and steps.step.max() == done - 1
    seen = seen[seen.metric == "accuracy"]
    assert seen.step.tolist() == list(range(5, done + 1, 5))
    assert (seen.value[:-1] < 0.2).all() and seen.value.iloc[-1] >= 0.2


def test_a_target_that_ends_the_run_is_a_number() -> None:
    with pytest.raises(BadSetting, match="target.value must be a number with target.ends_run"):
        checked(settings_of("target.value=null", "target.ends_run=true"))
