"""What a command says of its runs, and its exit status: refused or failed, or only not valid."""

import logging
from pathlib import Path

import pytest

from harness.cli import run_queue
from harness.runner.run import Outcome
from tests.test_settings import settings

BUSY = "other processes took 60 % of the processors"


@pytest.mark.parametrize(("states", "status"), [
    (["succeeded", "succeeded"], 0),
    (["succeeded", "invalid"], run_queue.NOT_VALID),
    (["failed", "invalid"], 1),
    (["interrupted"], 1),
])  # fmt: skip
def test_a_script_can_tell_a_run_that_failed_from_a_machine_that_was_busy(
    states: list[str], status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = iter(states)

    def perform(wanted: object) -> Outcome:
        return Outcome(tmp_path, state := next(left), BUSY if state != "succeeded" else None, False)

    wanted = settings("report=false", f"results={tmp_path}")
    with caplog.at_level(logging.INFO, "harness"):
        assert run_queue.in_turn([wanted] * len(states), perform) == status
    kept = "it is kept, and figures leave it out; the same command makes it again"
    said = f"logs: {tmp_path}/logs\n{kept}\nrun invalid: {BUSY}\n"
    assert (said in caplog.text) == ("invalid" in states)
