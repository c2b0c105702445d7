"""Runs a test function as process 1 of fresh namespaces, so that the test process never changes.

`python -m tests.emulation.inside MODULE LAW WHO` is that process.
"""

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.emulation import user_namespace
from profiles.base import Extremes, Link, Way
from tests.launching import forked

ROOT = Path(__file__).parents[2]
SPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
MAPPED = ["--user", "--map-root-user"]


def start(
    python: str,
    arguments: Sequence[str],
    before: Sequence[str] = (),
    mapped: bool | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `python` in fresh namespaces, `mapped` to root in a user namespace unless root."""
    user = MAPPED if (os.geteuid() != 0 if mapped is None else mapped) else []
    command = [*before, *SPACES, *user, python, *arguments]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s
    )


@functools.cache
def refusal(mapped: bool | None = None) -> str:
    """Why this machine cannot run a function inside; empty when it can."""
    tried = start(sys.executable, ["-c", "pass"], mapped=mapped)
    return tried.stderr.strip() if tried.returncode else ""


def inside(law: Callable[[], None]) -> Callable[..., None]:
    """Tests that run `law` inside, as root of the machine and of a user namespace alone.

    They fail with what `law` raised. An ordinary user has no more than the second.
    """

    @pytest.mark.parametrize("who", ["root", "rootless"] if os.geteuid() == 0 else ["rootless"])
    def test(who: str) -> None:
        mapped = who == "rootless"
        if refusal(mapped):
            pytest.skip(f"namespaces are refused here: {refusal(mapped)}")
        done = forked([sys.executable, "-m", __name__, law.__module__, law.__name__, who])
        assert done.returncode == 0, done.stderr

    test.law = law  # type: ignore[attr-defined]
    test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
    return pytest.mark.network(test)


class Flat:
    """The same rate for ever."""

    def __init__(self, rate_mbit: float, **more: float) -> None:
        self.conditions = Link(rate_mbit, **more)

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return self.conditions

    def flows(self, time_s: float) -> int:
        return 0

    def extremes(self) -> Extremes:
        return Extremes(self.conditions.rate_mbit, *self.conditions)


def main(module: str, law: str, who: str) -> None:
    """Run `law` as root of the machine, or of a user namespace alone."""
    if who == "rootless":
        user_namespace.become_root()
    user_namespace.enter()
    getattr(importlib.import_module(module), law).law()


if __name__ == "__main__":
    main(*sys.argv[1:])
