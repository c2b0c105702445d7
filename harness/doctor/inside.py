"""Trial of links and whole networks in a run's enclosure, started by `trial`; answers in JSON.

Standard input has the networks, as `trial.asked` gives them. It does not import torch, to be fast.
"""

import json
import sys
from functools import partial
from typing import Any

from hydra.utils import instantiate

from harness.emulation.capabilities import offered
from harness.emulation.links import NetworkError


def main() -> None:
    refusals = [_refusal(**network) for network in json.load(sys.stdin)]
    print(json.dumps({"kinds": offered(), "networks": refusals}))


def _refusal(network: dict[str, Any], profile: dict[str, Any], nodes: int, dilation: float) -> str:
    """Say why this network does not come up. Empty if it does and reads back as intended."""
    build = partial(instantiate, _convert_="all")
    try:
        with build(network).up(nodes, build(profile), dilation) as up:
            return "; ".join(up.verify())
    except (NetworkError, ValueError) as error:
        return str(error)


if __name__ == "__main__":
    main()
