"""Virtual time needs nothing of Linux: no netlink, no namespaces, no /proc."""

import os
import subprocess
import sys
import time

import pytest

from harness.records import status
from tests.launching import afresh

WITHOUT = """
import sys
sys.modules["pyroute2"] = None  # importing it raises
from harness.runner import run
from harness.config.scales import composed
from harness.validation import checked
settings, _ = composed(["network=simulated", "steps=2", "model.width=8", "results=" + sys.argv[1]])
checked(settings)
outcome = run.perform(settings)
print(outcome.state, outcome.error)
"""


def test_a_run_imports_no_netlink(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    done = afresh(command, 120)
    assert done.stdout.strip() == "succeeded None", done.stdout + done.stderr


@pytest.mark.parametrize("proc", ["/proc", "/nowhere"])
def test_a_process_is_known_again_without_proc(monkeypatch, tmp_path, proc):
    monkeypatch.setattr(status, "PROC", status.Path(proc))
    status.begin(tmp_path)
    assert status.state(tmp_path) == "running"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = status._since(child.pid)
    assert began is not None and status._since(child.pid) == began
    child.communicate(b"\n")
    deadline = time.monotonic() + 10
    while status._since(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status._since(child.pid) is None
    assert status._since(os.getpid()) is not None
