"""What all tests share.

What real links and whole runs measure, the machine's other work may disturb: such tests have three
attempts. A defect fails all of them; the summary names every test that needed more than one.

Triton interprets its kernels where there is no GPU; it asks when it is first imported.

A TCPStore asks the machine's resolver for the name of every address before it connects; one that
loses a question costs 5 s unless it is told otherwise, within the 5 s that a connection may take.
"""

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from xdist.scheduler import LoadFileScheduling

from harness.runner import fork_server as product
from tests import fork_server, launching, machine, touched
from tests.emulation import virtual

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

# What only a GPU can show is collected where there is one.
collect_ignore_glob = [] if torch.cuda.is_available() else [f"*/{touched.ON_GPU}"]

gc.set_threshold(50_000, 20, 20)  # while it is imported and collected: looked through seldom

DISTURBED = ("network", "launch", "timed")


IGNORED = (signal.SIGHUP, signal.SIGINT)  # by nohup, and by a shell for what is in the background


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """What a test runs may set variables, as numba's cache does; the next test has the first ones.

    A command is forked, and so quick, only in the environment of the process that forks it.
    """
    yield
    _first_environment()


@pytest.fixture(autouse=True, scope="session")
def _forked_supervisors() -> None:
    """A run within the tests' process has its supervisor from what is imported already."""
    popen = {"Popen": launching.popen_by_product}
    product.subprocess = SimpleNamespace(**vars(subprocess) | popen)  # type: ignore[attr-defined]


def _first_environment() -> None:
    first = fork_server.environment()
    for name in os.environ.keys() - first.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(first)


def pytest_sessionstart(session: pytest.Session) -> None:
    fork_server.environment()
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


def pytest_collection_finish() -> None:
    """What is imported and collected is for all tests: none looks through it, nor copies it.

    What was imported may have set variables; the first test has those of the next ones.
    """
    _first_environment()
    gc.collect()
    gc.freeze()


class MachineScheduling(LoadFileScheduling):
    """A file is of one of the machines, and all with laws for the virtual machine are of one."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        self._virtual = virtual.files()

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "the virtual machine" if file in self._virtual else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    return MachineScheduling(config, log)


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # what is left of a library's at the end of a process is told as its leak


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, whole runs before all: machines side by side should end at one time."""
    disturbed = [item for item in items if any(map(item.get_closest_marker, DISTURBED))]
    for item in disturbed:
        item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
    first = {item.path for item in disturbed}
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: (item.path not in first, item.path not in long))
