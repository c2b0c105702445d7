"""Inside a run's enclosure: what the kernel offers, and whether the networks asked for come up.

Reads from standard input what `asked` writes, answers with a Trial as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.doctor.composition import Composition
from harness.network.capabilities import offered
from harness.network.links import NetworkError
from harness.run import enclosure
from harness.settings import Settings

TRY_S = 120.0


class Trial(NamedTuple):
    kinds: dict[str, str]  # of interface and queue: why the kernel refuses it, "" if it does not
    networks: list[str]  # why it did not come up, "" if it did; in the order asked


def asked(compositions: Sequence[Composition]) -> list[dict[str, Any]]:
    """Each network of these runs once, as the settings that decide it."""
    found = []
    for run in compositions:
        settings = run.settings
        network = {key: settings[key] for key in ("network", "profile", "emulation", "workers")}
        network["workers_per_node"] = settings["workers_per_node"]
        if network not in found:
            found.append(network)
    return found


def attempt(networks: list[dict[str, Any]]) -> Trial:
    """Try in an enclosure such as a run's; RuntimeError when it cannot be had or breaks."""
    command = [*enclosure(), sys.executable, "-m", "harness.doctor.trial"]
    text = json.dumps(networks)
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TRY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from error
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
    return Trial(**json.loads(done.stdout))


def main() -> None:
    networks = [Settings(config) for config in json.load(sys.stdin)]
    trial = Trial(offered(), [_refusal(network) for network in networks])
    print(json.dumps(trial._asdict()))


def _refusal(settings: Settings) -> str:
    nodes = settings["workers"] // settings["workers_per_node"]
    profile, network = settings.build("profile"), settings.build("network")
    try:
        with network.up(nodes, profile, settings["emulation.dilation"]) as up:
            return "; ".join(up.verify())
    except (NetworkError, ValueError) as error:
        return str(error)


if __name__ == "__main__":
    main()
