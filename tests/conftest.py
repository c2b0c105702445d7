"""What all tests share.

What real links and whole runs measure, the machine's other work may disturb: such tests have three
attempts. A defect fails all of them; the summary names every test that needed more than one.

Triton interprets its kernels where there is no GPU; it asks when it is first imported.

A TCPStore asks the machine's resolver for the name of every address before it connects; one that
loses a question costs 5 s unless it is told otherwise, within the 5 s that a connection may take.
"""

import os
import signal

import pytest
import torch

from tests import machine

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

DISTURBED = ("network", "launch", "timed")


IGNORED = (signal.SIGHUP, signal.SIGINT)  # by nohup, and by a shell for what is in the background


def pytest_sessionstart(session: pytest.Session) -> None:
    worker = hasattr(session.config, "workerinput")  # of pytest-xdist: one of several, side by side
    if worker:
        machine.own_network()
    if worker or session.config.getoption("dist", "no") == "no":
        _ignore_alone()


def _ignore_alone() -> None:
    """What is started gets signals as a terminal's commands do, also where tests ignore them."""
    for number in IGNORED:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # unlike SIG_IGN not passed on by exec


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole runs first: they take longest, and machines side by side should end at one time."""
    disturbed = [item for item in items if any(map(item.get_closest_marker, DISTURBED))]
    for item in disturbed:
        item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
    long = {item.path for item in disturbed}
    items.sort(key=lambda item: item.path not in long)
