"""Steps that a row of a hand-made table stands for, by its throughput."""

from typing import Any

import pandas as pd

from papers.netsense.groups import SETTLED, SHARE

STEPS: dict[str, pd.DataFrame] = {}  # by the path of a row


def at(speed: float) -> dict[str, Any]:
    """A row's samples/s and path, with steps that have it after a start-up ten times as slow."""
    path = f"{speed} samples/s"
    lengths = [10.0 if step < SETTLED else 1.0 for step in range(SHARE * SETTLED)]
    ends = pd.Series(lengths).cumsum() / speed
    columns = {"step": range(len(lengths)), "time_s": ends, "samples": 1, "density": 0.005}
    STEPS[path] = pd.DataFrame(columns)
    return {"throughput": speed, "path": path}
