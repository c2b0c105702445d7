"""What makes a foreign run invalid, from counters and lines alone."""

from types import SimpleNamespace
from typing import Any

from harness.around import verdict
from harness.around.settings import Command
from harness.around.told import ToldSteps


def test_a_node_that_sent_nothing_is_told_even_where_no_line_told_of_a_step() -> None:
    asked: Any = SimpleNamespace(nodes=2)
    found: Any = SimpleNamespace(
        readings=[],
        traffic=SimpleNamespace(passed=lambda: {"up0": 0, "down0": 70, "up1": 5000, "down1": 0}),
        interfaces=SimpleNamespace(sent_bytes={0: {"lo": 9000}, 1: {"lo": 20}}),
    )
    [reason] = verdict._around(asked, found)
    assert reason.startswith("node 0 sent 0 bytes over its link in all, and 9000 by lo, which")


def test_a_line_whose_step_is_no_number_is_lost_and_the_run_goes_on() -> None:
    pattern = r"step (?P<step>\S+) loss (?P<loss>\S+)"
    lines = ToldSteps(Command(("x",), "first_byte", pattern, None, None, None))
    assert not lines.take("step nan loss 1", 0.5, 1.0)
    assert not lines.take("step one loss 1", 0.5, 1.0)
    assert lines.take("step 1 loss nan", 1.0, 1.0)
    assert lines.lost == 2 and [told.step for told in lines.all] == [1]
