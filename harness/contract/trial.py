"""Trial call of a part from outside this repository, before anything starts."""

from collections.abc import Callable
from typing import Any

import torch

from compressors.checks import BadPart
from harness.contract.activations import there_and_back
from harness.contract.reductions import ThreadReplica, gradient
from harness.contract.threads import ThreadMeeting, ThreadWorkers
from harness.engine.exchange.decisions import density_of, state_of

N, DENSITY = 1000, 0.5  # of the bucket


def tried(group: str, part: Any) -> None:
    """Call a part of `group` once as the only worker. Raise BadPart if its result is malformed.

    Other errors are left to the run, where they may not occur. Random numbers are restored.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            CALLS[group](part)
        except BadPart:
            raise
        except Exception:  # whatever the part raises
            return


def _reduce(compressor: Any) -> None:
    workers = ThreadWorkers(0, ThreadMeeting(1))
    ThreadReplica(workers, compressor).reduce(gradient(N, 0), DENSITY)


def _decide(controller: Any) -> None:
    density_of(controller, None)
    state_of(controller)


CALLS: dict[str, Callable[[Any], object]] = {
    "compressor": _reduce,
    "controller": _decide,
    "activations": lambda scheme: there_and_back(scheme, scheme, 0),
}
