"""Trial call of a user's own part, to find malformed results before a run starts."""

from collections.abc import Callable
from math import isfinite
from numbers import Integral, Real
from typing import Any

import torch

from compressors.checks import BadPart, refuse
from harness.contract.activations import there_and_back
from harness.contract.reductions import ThreadReplica, gradient
from harness.contract.threads import ThreadMeeting, ThreadWorkers
from harness.engine.exchange.reduction import density_of, state_of
from profiles.base import WAYS, Extremes, Link
from profiles.limits import LEAST_MBIT, MOST_DELAY_MS, MOST_MBIT

N, DENSITY = 1000, 0.5  # size of the trial bucket, density
TIMES_S = (0.0, 0.25, 1.0, 10.0, 100.0, 1000.0, 10_000.0)  # times at which a profile is sampled
PATH = {  # lowest and highest value of each field of a link
    "rate_mbit": (LEAST_MBIT, MOST_MBIT), "delay_ms": (0, MOST_DELAY_MS),
    "jitter_ms": (0, MOST_DELAY_MS), "loss": (0, 1), "reorder": (0, 1),
}  # fmt: skip


def tried(group: str, part: Any) -> None:
    """Call a part of `group` once as the only worker. Raise BadPart if its result is malformed.

    Other errors are ignored, as they may not occur in the run. Random numbers are restored. A
    profile is asked for the first node's link, in both directions, at a few times.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            CALLS[group](part)
        except BadPart:
            raise
        except Exception:  # parts may raise anything
            return


def _reduce(compressor: Any) -> None:
    workers = ThreadWorkers(0, ThreadMeeting(1))
    ThreadReplica(workers, compressor).reduce(gradient(N, 0), DENSITY)


def _decide(controller: Any) -> None:
    density_of(controller, None)
    state_of(controller)


def _look(profile: Any) -> None:
    """Raise BadPart unless the profile's bounds and links are numbers within PATH."""
    most = profile.extremes()
    if not isinstance(most, Extremes):
        refuse(profile, "extremes()", "a profiles.base.Extremes", most)
    _check_number(profile, "extremes().lowest_mbit", most.lowest_mbit, LEAST_MBIT, MOST_MBIT)
    _check_number(
        profile, "extremes().highest_mbit", most.highest_mbit, most.lowest_mbit, MOST_MBIT
    )
    for time_s in TIMES_S:
        count = profile.flows(time_s)
        if not (isinstance(count, Integral) and int(count) >= 0):
            refuse(profile, f"flows({time_s})", "a whole number >= 0", count)
        for way in WAYS:
            call = f"link({time_s}, 0, {way!r})"
            link = profile.link(time_s, 0, way)
            if not isinstance(link, Link):
                refuse(profile, call, "a profiles.base.Link", link)
            for name, (least, highest) in PATH.items():
                _check_number(profile, f"{call}.{name}", getattr(link, name), least, highest)


def _check_number(part: Any, what: str, value: Any, least: float, most: float) -> None:
    """Raise BadPart unless `value`, described by `what`, is a number in [least, most]."""
    if not (isinstance(value, Real) and isfinite(value) and least <= float(value) <= most):
        refuse(part, what, f"a number in [{least:g}, {most:g}]", value)


CALLS: dict[str, Callable[[Any], object]] = {
    "compressor": _reduce,
    "controller": _decide,
    "profile": _look,
    "activations": lambda scheme: there_and_back(scheme, scheme, 0),
}
