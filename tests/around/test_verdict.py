"""What makes a foreign run invalid, from counters and lines alone."""

from types import SimpleNamespace
from typing import Any

from harness.around import verdict


def test_a_node_that_sent_nothing_is_told_even_where_no_line_told_of_a_step() -> None:
    asked: Any = SimpleNamespace(nodes=2)
    found: Any = SimpleNamespace(
        steps=[],
        traffic=SimpleNamespace(passed=lambda: {"up0": 0, "down0": 70, "up1": 5000, "down1": 0}),
        interfaces=SimpleNamespace(sent_bytes={0: {"lo": 9000}, 1: {"lo": 20}}),
    )
    [reason] = verdict._around(asked, found)
    assert reason.startswith("node 0 sent 0 bytes over its link in all, and 9000 by lo, which")
