"""What only a run's enclosure can tell: what the kernel offers, and whether networks come up."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.doctor.composition import Composition
from harness.network import enclosure

TRY_S = 120.0


class Trial(NamedTuple):
    kinds: dict[str, str]  # of interface and queue: why the kernel refuses it, "" if it does not
    networks: list[str]  # why it did not come up, "" if it did; in the order asked


def asked(compositions: Sequence[Composition]) -> list[dict[str, Any]]:
    """Each network of these runs once; those of several machines cannot come up on one."""
    found = []
    for run in compositions:
        if run.is_on_real_interfaces:
            continue
        network = {key: run.settings[key] for key in ("network", "profile")}
        network |= {"nodes": run.nodes, "dilation": run.settings["emulation.dilation"]}
        if network not in found:
            found.append(network)
    return found


def attempt(networks: list[dict[str, Any]]) -> Trial:
    """Try them in an enclosure such as a run's; RuntimeError when it cannot be had or breaks."""
    command = enclosure.command(sys.executable, "-m", "harness.doctor.inside")
    text = json.dumps(networks)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TRY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from error
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
    return Trial(**json.loads(done.stdout))
