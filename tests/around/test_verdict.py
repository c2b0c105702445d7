"""What makes a foreign run invalid, from counters and lines alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.around import verdict
from harness.around.settings import Command
from harness.around.told import ToldSteps


def test_a_node_that_sent_nothing_is_told_even_where_no_line_told_of_a_step() -> None:
    asked: Any = SimpleNamespace(nodes=2)
    found: Any = SimpleNamespace(
        steps=[],
        traffic=SimpleNamespace(passed=lambda: {"up0": 0, "down0": 70, "up1": 5000, "down1": 0}),
        interfaces=SimpleNamespace(sent_bytes={0: {"lo": 9000}, 1: {"lo": 20}}),
    )
    [reason] = verdict._around(asked, found)
    assert reason.startswith("node 0 sent 0 bytes over its link in all, and 9000 by lo, which")


TIMED = r"step (?P<step>\d+) time (?P<time>\S+)"
PLAN = [{"event": "conditions", "planned_s": 0.0, "links": {"up0": {"rate_mbit": 8.0}}}]


def of_time(told_s: list[float], came_s: list[float], bytes_per_s: float = 1e6) -> list[str]:
    """Reasons against the time of a trainer, whose link of 1e6 bytes/s carries so much."""
    lines = ToldSteps(Command(("x",), "first_byte", TIMED, None, None, None))
    for step, (told, came) in enumerate(zip(told_s, came_s, strict=True)):
        lines.take(f"step {step} time {told}", came)
    asked: Any = SimpleNamespace(command=lines.command, emulation=SimpleNamespace(dilation=1.0))
    traffic = SimpleNamespace(at=lambda at_s, link: bytes_per_s * at_s)
    found: Any = SimpleNamespace(steps=lines.finish(9.0, 1.0), traffic=traffic)
    return verdict._own_time(asked, found, PLAN)


@pytest.mark.parametrize(("told_s", "came_s"), [
    ([50.0, 51.0, 52.0], [1.0, 2.0, 3.0]),  # since another moment
    ([0.0, 1.0, 2.0], [0.01, 1.09, 2.0]),  # late by what a busy machine takes
    ([0.0, 0.5, 1.0, 1.5, 2.0], [1.0, 1.0, 1.0, 2.0, 2.0]),  # buffered lines, written before
])  # fmt: skip
def test_an_honest_time_is_believed(told_s: list[float], came_s: list[float]) -> None:
    assert of_time(told_s, came_s) == []


def test_a_time_without_what_no_link_carried_is_believed() -> None:
    """It leaves out a pause of 3 s in which nothing is sent: half of 6 s carry all bytes."""
    told_s, came_s = [0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 4.0, 6.0]
    assert of_time(told_s, came_s, bytes_per_s=0.5e6) == []


@pytest.mark.parametrize(("told_s", "came_s", "reason"), [
    ([0.0, 0.1, 0.2], [0.0, 1.0, 2.0], "2000000 bytes crossed up0 from step 0 to 2"),
    ([0.0, 0.0, 1.0], [0.0, 1.0, 2.0], "1000000 bytes crossed up0 from step 0 to 1"),
    ([0.0, 3.0, 6.0], [0.0, 1.0, 2.0], "6 s passed by the command's own time from step 0 to 2"),
    ([0.0, 1.0, 0.5], [0.0, 1.0, 2.0], "goes back by 0.5 s from step 1 to 2"),
])  # fmt: skip
def test_a_time_that_cannot_be_is_told(told_s, came_s, reason):
    [only] = of_time(told_s, came_s)
    assert reason in only and "leave the group time out" in only
