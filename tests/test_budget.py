"""The project is no larger than its budget, which may only fall."""

import subprocess
import sys

from tests.budget import ROOT


def test_every_measure_is_within_its_limit() -> None:
    """In a process of its own: an exchange is looked at, which needs a process group."""
    command = (sys.executable, "-m", "tests.budget")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
