"""Two tries of a run with emulation.dilation=auto: the second is slower, if load spoilt the first.

An emulated second of the first try lasts as long as a real one; with a single processor, 4. Load
adds real time to a step, so it is a smaller share of a slower step. The runner decides from
summary.json of the first try and repeats the run in the same directory, where an event records the
first. There is no third try: the second one is the result, whatever its grade.
"""

import os
import sys
from pathlib import Path
from typing import Any

from harness.records.run_directory import Events, read_events, read_json
from harness.runner.checks import FAILS, UNCHECKED
from harness.runner.lateness import MOST_VALID_SHARE

SLOWER = (2.0, 4.0)  # dilations of a second try
FIRST_TRY = "first_try"  # event: grade and bound of the first try, and the dilation of the second
KEPT = ("dilation", "time_s", "grade", "late_at_most_share", "reasons")


def dilation_of_try(run_dir: Path) -> float:
    """Return the dilation of the next try in `run_dir`, for emulation.dilation=auto."""
    tried = [event for event in read_events(run_dir) if event["event"] == FIRST_TRY]
    return float(tried[-1]["then"]) if tried else first_dilation(os.cpu_count() or 1)


def first_dilation(processors: int) -> float:
    """Return the dilation of the first try on a machine with this number of processors."""
    return SLOWER[-1] if processors == 1 else 1.0


def second_dilation(summary: dict[str, Any]) -> float | None:
    """Return the dilation of a second try, given the first one's `summary`; None for no second try.

    It is the least of SLOWER that should bring the bound of lateness to 5 % of the time, if load
    adds the same real time to each step; the highest if none does.
    """
    share, dilation = summary["late_at_most_share"], summary["dilation"]
    others = {name: result for name, result in summary["proof"]["checks"].items()
              if name != "lateness"}  # fmt: skip
    spoilt = any(result == FAILS or result.startswith(UNCHECKED) for result in others.values())
    if share is None or share <= MOST_VALID_SHARE or spoilt or dilation >= SLOWER[-1]:
        return None
    enough = (slower for slower in SLOWER if share * dilation / slower <= MOST_VALID_SHARE)
    return next(enough, SLOWER[-1])


def to_repeat(run_dir: Path) -> dict[str, Any] | None:
    """Return the summary of the first try in `run_dir` if a second one is due, or None."""
    summary = read_json(run_dir / "summary.json")
    return summary if summary and second_dilation(summary) else None


def note_first(run_dir: Path, summary: dict[str, Any]) -> None:
    """Record the first try's `summary` as an event in `run_dir`, and print that a second is due."""
    dilation, events = second_dilation(summary), Events(run_dir)
    events.append(FIRST_TRY, then=dilation, first={key: summary[key] for key in KEPT})
    events.close()
    late = f"late by at most {summary['late_at_most_share']:.1%}"
    print(f"{late}: once more at emulation.dilation={dilation:g}", file=sys.stderr, flush=True)
