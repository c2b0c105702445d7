"""What real links and whole runs measure, the machine's other work may disturb: three attempts.

A defect fails all of them; the summary names every test that needed more than one.
"""

import pytest

DISTURBED = ("network", "launch", "timed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(marker) for marker in DISTURBED):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
