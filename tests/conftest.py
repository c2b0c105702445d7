"""What all tests share.

What real links and whole runs measure, the machine's other work may disturb: such tests have three
attempts. A defect fails all of them; the summary names every test that needed more than one.

Triton interprets its kernels where there is no GPU; it asks when it is first imported.

A TCPStore asks the machine's resolver for the name of every address before it connects; one that
loses a question costs 5 s unless it is told otherwise, within the 5 s that a connection may take.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

DISTURBED = ("network", "launch", "timed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(marker) for marker in DISTURBED):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
