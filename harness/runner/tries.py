"""Tries of a run with emulation.dilation=auto: a second one, slower, if only load spoilt the first.

The emulated second of the first try lasts as long as a real one; on one processor, 4. What other
programs add to a step takes real time, so it is a smaller share of a slower step. The runner
decides from summary.json of the first try and repeats the run in the same directory, where an event
records the first. There is no third try: the second one is the result, whatever its grade.
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
    """Dilation of the try that is to begin in `run_dir`, of a run with emulation.dilation=auto."""
    tried = [event for event in read_events(run_dir) if event["event"] == FIRST_TRY]
    return float(tried[-1]["then"]) if tried else first_dilation(os.cpu_count() or 1)


def first_dilation(processors: int) -> float:
    """Dilation of the first try on so many processors."""
    return SLOWER[-1] if processors == 1 else 1.0


def second_dilation(summary: dict[str, Any]) -> float | None:
    """Dilation of a second try after the first one's `summary`; None if there is to be none.

    The least of SLOWER that brings the bound of the lateness to 5 % of the time, as far as load
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
    """Return the summary of the first try in `run_dir` if there is to be a second one."""
    summary = read_json(run_dir / "summary.json")
    return summary if summary and second_dilation(summary) else None


def note_first(run_dir: Path, summary: dict[str, Any]) -> None:
    """Record the `summary` of the first try in the directory of the second, and say so."""
    dilation, events = second_dilation(summary), Events(run_dir)
    events.append(FIRST_TRY, then=dilation, first={key: summary[key] for key in KEPT})
    events.close()
    late = f"late by at most {summary['late_at_most_share']:.1%}"
    print(f"{late}: once more at emulation.dilation={dilation:g}", file=sys.stderr, flush=True)
