"""Findings that need a run's enclosure: kernel features, and whether networks come up."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from harness.doctor.composition import Composition
from harness.emulation import user_namespace

TRY_S = 120.0


class Trial(NamedTuple):
    kinds: dict[str, str]  # of interface and queue: why the kernel refuses it, "" if it does not
    networks: list[str]  # why it did not come up, "" if it did; in the order asked


def asked(compositions: Sequence[Composition]) -> list[Composition]:
    """Return one run of each network, without those of several machines."""
    found: list[Composition] = []
    for each in compositions:
        if each.as_told not in [one.as_told for one in found] and not each.is_on_real_interfaces:
            found.append(each)
    return found


def attempt(compositions: Sequence[Composition]) -> Trial:
    """Start the networks of `compositions` in a sandbox like a run's.

    Return why each kind of interface or queue, and each network, failed; "" if it worked. Raise
    RuntimeError if the sandbox cannot start or ends with an error.
    """
    command = user_namespace.command(sys.executable, "-m", "harness.doctor.inside")
    text = json.dumps([each.as_told for each in compositions])
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TRY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from error
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
    return Trial(**json.loads(done.stdout))
