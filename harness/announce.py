"""What a command costs, in a line before it starts: runs, minutes, and how to run fewer.

A second line warns of runs over packets whose steps would be in part this machine's.
"""

from typing import NamedTuple

from harness import machine_share
from harness.clock import minutes_of
from harness.config import label
from harness.config.settings import Settings
from harness.reproduce.estimate import Estimate


class Announced(NamedTuple):
    """The line, what it was told by, and what this machine adds to steps ("" if little)."""

    said: str
    estimate: Estimate
    added: str


def announced(runs: list[Settings]) -> Announced:
    """Runs that succeeded before are counted apart."""
    estimate, unknown = Estimate(at_a_time=1), 0
    for settings in runs:
        try:
            estimate.add(settings)
        except Exception:  # a prediction that fails says nothing of the run
            unknown += 1
    todo = estimate.runs(True) + estimate.runs(False) + unknown
    done = f", {len(runs) - todo} of them done before" if todo < len(runs) else ""
    minutes = f", about {minutes_of(estimate.left_s())}" if todo > unknown else ""
    more = f" and {unknown} of unknown length" if unknown and minutes else ""
    said = f"{len(runs)} runs{done}{minutes}{more}; fewer: {_fewer(runs)}"
    return Announced(said, estimate, _added(estimate))


def _added(estimate: Estimate) -> str:
    try:
        return machine_share.said(estimate.over_packets())
    except Exception:  # a prediction that fails says nothing of the runs
        return ""


def _fewer(runs: list[Settings]) -> str:
    """Overrides that leave one run: the first, or the one that its preset is."""
    first, at = runs[0], {"method": "method.name", "seed": "seed"}
    said = {"method": label.preset_of(first.config), "seed": first["seed"]}
    differ = {key for key in said if len({str(each[at[key]]) for each in runs}) > 1}
    return " ".join(f"{key}={value}" for key, value in said.items() if key in differ or not differ)
