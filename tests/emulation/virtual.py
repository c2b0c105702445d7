"""Runs laws in a virtual machine with netem, so that they hold on kernels that have none.

All laws of a module that a session selected share one boot, as booting and importing are slow
there; each is a process in a network namespace of its own, and a result of pytest's of its own.
The machine has one processor, no KVM and timers of 10 ms. It has three times the share of others in
a processor, so no two are up at one time: tests/conftest.py has one process test all their modules.
"""

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence

import pytest

from harness.emulation.namespaces import Namespace
from tests.emulation.inside import ROOT
from tests.fork_server import FRESH

# to compile the kernels takes 40 s there, and its laws are about networks
BOOT = [str(ROOT / "tests" / "netem-vm"), "--mem", "3G", "--env", "GRADNET_KERNELS=numpy"]
BOOT += ["--nice", "-5"]  # a token bucket forgives its kernel a few ms at most
MISSING_PACKAGES = 2  # exit status of netem-vm; it says which
LAW_S, SESSION_S = 600, 840  # of one law, of all laws of a module

Law = Callable[[], None]


def virtual(law: Law) -> Callable[[pytest.FixtureRequest], None]:
    """A test that runs `law` in the virtual machine; it fails with what `law` raised."""

    def test(request: pytest.FixtureRequest) -> None:
        here = [item for item in request.session.items if item.module is request.module]
        selected = (getattr(item.function, "virtual", None) for item in here)
        names = tuple(chosen.__name__ for chosen in selected if chosen)
        attempt = getattr(request.node, "execution_count", 1)
        asked = names if attempt == 1 else (law.__name__,)
        raised = results(law.__module__, asked, attempt).get(
            law.__name__, "the machine ended before it"
        )
        assert not raised, raised

    test.virtual, test.__doc__ = law, law.__doc__  # type: ignore[attr-defined]
    for mark in (pytest.mark.network, pytest.mark.timeout(SESSION_S + 60)):
        test = mark(test)
    return test


def files() -> set[str]:
    """Those with laws for the virtual machine, as pytest names them."""
    paths = (ROOT / "tests").rglob("test_*.py")
    return {str(path.relative_to(ROOT)) for path in paths if "\n@virtual\n" in path.read_text()}


@functools.cache
def results(module: str, names: tuple[str, ...], attempt: int) -> dict[str, str]:
    """What each law of `module` raised there, empty when it holds; a law not reached is absent.

    Every `attempt` is a boot of its own.
    """
    laws = [sys.executable, "-m", __name__, module, *names]
    command = [*BOOT, "--timeout", str(SESSION_S), "--env", f"{FRESH}=1", "--", *laws]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode == MISSING_PACKAGES and "CI" not in os.environ:
        pytest.skip(f"no virtual machine: {done.stderr.strip()}")
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    if done.returncode != 0:
        ended = f"the virtual machine ended with {done.returncode}: {done.stderr[-2000:]}"
        found = {name: found.get(name, ended) for name in names}
    return found


def raised_by(law: Law) -> str:
    """What `law` raised in a process and a network namespace of its own; empty when it holds."""
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if child == 0:
            os.dup2(told.fileno(), 1)
            os.dup2(told.fileno(), 2)
            signal.alarm(LAW_S)
            held = False
            try:
                with Namespace.create().entered():
                    law()
                held = True
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0 if held else 1)
        _, status = os.waitpid(child, 0)
        told.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return "" if code == 0 else told.read() or f"ended with {code}"


def main(module: str, names: Sequence[str]) -> None:
    """In the machine: one JSON line for each law, as soon as it ended."""
    laws = importlib.import_module(module)
    for name in names:
        print(json.dumps([name, raised_by(getattr(laws, name).virtual)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
