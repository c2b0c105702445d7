"""An ordinary user gets the same network, through a user namespace."""

import functools
import os
import shutil
import site
import sys
from collections.abc import Sequence

import pytest

from tests.emulation.inside import ROOT, start

NOBODY = 65534
LAW = (
    "from harness.emulation.star import Star\n"
    "from tests.emulation.inside import Flat\n"
    "with Star(probe_s=0.3).up(2, Flat(100.0), 1.0) as network:\n"
    "    probes = network.probe()\n"
    "    assert all(p.ok for p in probes), probes\n"
    "    assert network.verify() == [], network.verify()\n"
    "    print(open('/proc/self/uid_map').read().split()[1])\n"
)


def as_user() -> list[str]:
    """The command that drops root; empty for an ordinary user."""
    if os.geteuid() != 0:
        return []
    packages = ":".join([str(ROOT), *site.getsitepackages()])
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*drop, "env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={packages}"]


@functools.cache
def interpreter() -> tuple[str, str]:
    """A python that the user can run with our libraries, and why none of the others is one."""
    reasons = []
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        if python:
            tried = _start(python, ["-c", "import pyroute2, pytest, harness.emulation.star"])
            if tried.returncode == 0:
                return python, ""
            reasons.append(f"{python}: {tried.stderr.strip()[-200:]}")
    return "", "; ".join(reasons)


def _start(python: str, arguments: Sequence[str]):  # type: ignore[no-untyped-def]
    return start(python, arguments, before=as_user(), mapped=True)


@pytest.mark.network
def test_an_ordinary_user_gets_the_same_network() -> None:
    python, reason = interpreter()
    if not python:
        pytest.skip(f"no user namespace with a python in it: {reason}")
    done = _start(python, ["-c", LAW])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != "0" or os.geteuid() == 0, done.stdout
