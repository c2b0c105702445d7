"""Quality curves of a comparison as JSON in its page, drawn by curves.js; names are escaped."""

from typing import Any

import pandas as pd
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from harness.reporting.analysis.comparison import Comparison
from harness.reporting.analysis.figure_catalog import quality
from harness.reporting.figures.styles import Style, styles
from harness.reporting.figures.theme import spans_decades, thinned
from harness.reporting.page.html import without_folders

DIGITS = 5  # significant digits of a number
DASH_PX = 2.0  # one unit of a dash pattern


def of(comparison: Comparison) -> Markup | None:
    """Return the JSON for curves.js, safe inside a script element; None without evaluations.

    Its keys are metric, target, log (time axis) and curves: name, look, and points of time_s, step,
    value, low, high, where null means unknown.
    """
    found = {method: rows.dropna(subset="value") for method, rows in quality(comparison).items()}
    known = {method: rows for method, rows in found.items() if len(rows)}
    if not known:
        return None
    ends, begin_s = zip(*((t.time_s.max(), t.time_s.min()) for t in known.values()), strict=True)
    looks = styles(comparison.table.method)
    order = [method for method in comparison.table.method if method in known]
    told = {
        "metric": comparison.decision.metric.replace("_", " ") or "quality",
        "target": comparison.decision.target,
        "log": bool(spans_decades(ends) and min(begin_s) > 0),
        "curves": [_curve(method, known[method], looks[method]) for method in order],
    }
    return htmlsafe_json_dumps(told, separators=(",", ":"), allow_nan=False)


def _curve(method: str, table: pd.DataFrame, look: Style) -> dict[str, Any]:
    rows: Any = thinned(table, "value")[["time_s", "step", "value", "low", "high"]]
    lengths = [] if isinstance(look.linestyle, str) else look.linestyle[1]
    return {
        "name": without_folders(method),
        "look": {
            "stroke": look.color,
            "stroke-dasharray": " ".join(f"{DASH_PX * each:g}" for each in lengths),
        },
        "points": [[_number(value) for value in row] for row in rows.itertuples(index=False)],
    }


def _number(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if abs(value) < float("inf") else None
