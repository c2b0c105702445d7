"""Tables of planned rate, carried rate, queue and drops of a run's links, from its records."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.records.run_directory import read_events

WINDOW_SAMPLES = 2  # per window of a carried rate, so that a late sample makes no spike


class FlowSpan(NamedTuple):
    """Interval, in emulated seconds, in which at least one competing flow ran."""

    start_s: float
    end_s: float
    flows: int  # highest number at a time, over all paths


def shown_links(links: pd.DataFrame) -> list[str]:
    """Return the names of both trunk directions if there is a trunk, else of all links."""
    names = list(links.link.drop_duplicates())
    return [name for name in names if name.startswith("trunk")] or names


def over_time(links: pd.DataFrame) -> pd.DataFrame:
    """Return a row per link and sample: time_s, link, way, rates, backlog_ms and drops.

    `links` has the rows of links.csv. `carried_mbit` counts frames that passed the shaper while the
    emulated clock ran, so not in evaluation. `drops` counts since the last row. Units are emulated.
    """
    found = [_of_link(rows) for _, rows in links.groupby("link", sort=False)]
    return pd.concat(found, ignore_index=True) if found else _of_link(links)


def _of_link(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.sort_values("time_s", kind="stable")
    went_s = rows.time_s.diff().fillna(0.0)
    gained = rows["bytes"].diff().where(went_s > 0, 0).cumsum()
    drops = rows.drops.diff().fillna(0).clip(lower=0)
    found = pd.DataFrame(
        {
            "time_s": rows.time_s,
            "link": rows.link,
            "way": np.where(rows.link.str.contains("up"), "up", "down"),
            "planned_mbit": rows.planned_mbit,
            "carried_mbit": _rate(rows.time_s.to_numpy(float), gained.to_numpy(float)),
            "backlog_ms": rows.backlog_bytes * 8e-3 / rows.applied_mbit,
            "drops": drops.groupby(rows.time_s).transform("sum"),
        }
    )
    return found.drop_duplicates("time_s", keep="last")


def _rate(time_s: np.ndarray, total_bytes: np.ndarray) -> np.ndarray:
    """Return the rate in Mbit/s over a window before each time; NaN before the first window."""
    if len(time_s) <= WINDOW_SAMPLES:
        return np.full(len(time_s), np.nan)
    steps_s = np.diff(time_s)
    window_s = WINDOW_SAMPLES * float(np.median(steps_s[steps_s > 0])) if steps_s.any() else np.inf
    before = np.interp(time_s - window_s, time_s, total_bytes)
    rate = (total_bytes - before) * 8e-6 / window_s
    return np.where(time_s - window_s >= time_s[0] - 1e-9, rate, np.nan)


def competing(run: Path | str, end_s: float) -> list[FlowSpan]:
    """Return intervals with competing flows in `run`; a flow that never stops lasts to `end_s`."""
    changes: list[tuple[float, int]] = []
    for event in read_events(Path(run)):
        if event["event"] in ("flow_started", "flow_stopped"):
            began = event["event"] == "flow_started"
            changes.append((event["time_s"] or 0.0, 1 if began else -1))
    spans: list[FlowSpan] = []
    running, since_s, most = 0, 0.0, 0
    for time_s, change in [*sorted(changes), (end_s, 0)]:
        if not running:
            since_s, most = time_s, 0
        running += change
        most = max(most, running)
        if most and (not running or (time_s, change) == (end_s, 0)):
            spans.append(FlowSpan(since_s, time_s, most))
            most = 0
    return spans
