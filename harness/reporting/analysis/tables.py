"""Builds the tables of a report as `Grid`s, which a terminal or a page shows.

Titles and formats come from the `controllers.base.Column` annotations of the row classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from controllers.base import Column
from harness.records import columns
from harness.reporting.analysis.agreement import Order, Pair, Summary
from harness.reporting.analysis.grid import ColumnHead, Grid, TableCell, figure, number, word
from harness.reporting.analysis.metrics import SHOWN
from harness.reporting.analysis.proof import Proof
from harness.reporting.analysis.regret import ORACLE
from harness.reporting.claims import Claim, lines
from harness.reporting.claims.base import FAILS, HOLDS
from harness.reporting.claims.lines import Line

BOUNDS = {"low": "at least ", "high": "at most ", "unknown": "about "}
MARKS = {HOLDS: "good", FAILS: "bad"}
SPOKEN = {"time_s": "the whole run", "time_to_target_s": "time to target"}
TO_TARGET = ("time_to_target_s", "over_first")
OF_THEIR_OWN = ("time_to_target_s", "speedup")  # these have their own place or table
OVER_FIRST = Column("time to the target over the first's, same seed", "over the first (×)")
NAMED = {"method": Column(), "runs": Column()}
CLAIMS = {
    "id": Column(title="where"),
    "text": Column(title="what is said"),
    "by": Column(),
    "packets": Column(title="over packets"),
    "virtual": Column(title="in virtual time"),
    "measured": Column(),
    "reason": Column(title="why"),
    "p_holm": Column("of t tests on log ratios, for all claims together (Holm)", title="p"),
    "scale": Column(),
    "runs": Column(),
}
PUBLISHED = {"id": Column(title="where")}
PUBLISHED |= dict.fromkeys(("model", "network", "method", "metric"), Column())
PUBLISHED |= {"published": Column(digits=4), "measured": Column()}
PUBLISHED |= dict.fromkeys(("unit", "comparable", "note"), Column())
PUBLISHED |= {"kind": Column(title="runs over"), "scale": Column()}
REGRET = {
    "method": Column(),
    "seed": Column(),
    "network_seed": Column(),
    "regret": Column("time beyond the oracle's, over the oracle's", "regret (%)", percent=True),
    "by": Column(title="of"),
    "run_id": Column(title="run"),
}
PROGRESS = {"method": Column(), "progress": Column(title="progress over the oracle's (×)")}
LEFT_OUT = {"method": Column(), "seed": Column(), "network_seed": Column()}
LEFT_OUT |= {"run_id": Column(title="run"), "why": Column()}


def grid(table: pd.DataFrame, known: Mapping[str, Column] | None = None) -> Grid:
    """Return a `Grid` of the `known` columns of `table`, or of all columns by their names.

    A number has half its interval beside it if `table` has the ends. A bound is marked as such.
    """
    known = known or {str(name): Column() for name in table}
    numbers = {name: _is_number(table[name]) for name in known}
    heads = [
        ColumnHead(_title(name, column), numbers[name], column.told, column.wide)
        for name, column in known.items()
    ]
    rows: list[Any] = table.to_dict("records")
    return Grid(heads, [[_cell(row, *each, numbers) for each in known.items()] for row in rows])


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def _title(name: str, column: Column) -> str:
    """Return the column's own title, else the words of its name and its unit."""
    if column.title:
        return column.title
    unit = columns.unit(name)
    return name.replace("_", " ") if not unit else f"{columns.words(name)} ({unit})"


def _cell(row: dict[str, Any], name: str, column: Column, numbers: Mapping[str, bool]) -> TableCell:
    value = row[name]
    if not numbers[name]:
        told = ("no", "yes")[value] if isinstance(value, bool) else value
        return word(told, MARKS.get(value, ""))
    censored = name in TO_TARGET and row.get("reached", 0) < row.get("seeds", 0)
    if censored and pd.notna(value):
        share = f"{row['reached']} of {row['seeds']}" if name == "time_to_target_s" else ""
        return number(value, column.digits, share, "> ")
    before = BOUNDS.get(row.get("bound", ""), "") if name in ("measured", "regret") else ""
    before += "+" * (column.signed and value > 0)
    scale = 100 if column.percent else 1
    ends = ("low", "high") if name == "measured" else (f"{name}_low", f"{name}_high")
    low, high = map(row.get, ends)
    interval = ""
    if low is not None and high is not None and not pd.isna(low):
        interval = f"±{figure((high - low) / 2, column.digits - 1)}"
    return number(scale * value, column.digits, interval, before)


def comparison(table: pd.DataFrame) -> Grid:
    """Format `decision.arranged`: a row per method, in the order of the decision."""
    known = {"method": Column(), "seeds": Column()}
    if table.time_to_target_s.notna().any():
        known |= {"time_to_target_s": SHOWN["time_to_target_s"], "over_first": OVER_FIRST}
    others = {name: each for name, each in SHOWN.items() if name not in OF_THEIR_OWN}
    return grid(table, known | others | {"final": _final(table)})


def quality_over_time(table: pd.DataFrame) -> Grid | None:
    """Return final quality over time relative to the baseline, or None; oracles are left out."""
    table = table[table.controller != ORACLE]
    if table.speedup.isna().all():
        return None
    known = {"method": Column(), "final": _final(table)}
    return grid(table, known | {name: SHOWN[name] for name in ("time_s", "speedup")})


def _final(table: pd.DataFrame) -> Column:
    metric = table.metric.iloc[0].replace("_", " ") or "quality"
    return SHOWN["final"]._replace(title=f"final {metric}")


def proof(table: pd.DataFrame) -> Grid:
    """Format `proof.Proof` rows, one per run, or `proof.by_method`, one per method."""
    of_run = {"method": Column(), "seed": Column(), "network_seed": Column()}
    of_run |= {"run_id": Column(title="run")}
    return grid(table, (of_run if "run_id" in table else NAMED) | columns.shown(Proof))


def agreement(pairs: pd.DataFrame) -> Grid:
    """Format `agreement.Pair` rows: virtual time beside real packets."""
    return grid(pairs, columns.shown(Pair))


def errors(summaries: pd.DataFrame) -> Grid:
    """Format `agreement.by`: a row per group, its grouping columns first."""
    told = columns.of(Summary)
    return grid(summaries, {str(name): told.get(str(name), Column()) for name in summaries})


def orders(table: pd.DataFrame) -> Grid:
    """Format `agreement.orders`, without experiment or network if all rows have one."""
    told = columns.of(Order)
    same = [name for name in ("experiment", "virtual") if table[name].nunique() < 2]
    apart = [name for name in Order._fields if name not in same]
    return grid(table, {name: told.get(name, Column()) for name in apart})


def plan(rows: Sequence[tuple[str, int, Any]], apart: Sequence[str]) -> Grid:
    """Format a plan: rows of (method, number of runs, `plan.Prediction`).

    `apart` has for each row the settings in which it differs from the others, or "".
    """
    found = [each._asdict() | {"method": method, "runs": runs} for method, runs, each in rows]
    table = pd.DataFrame(found).assign(setting=apart)
    setting = {"setting": Column()} if any(apart) else {}
    known = {"method": Column(), **setting, "runs": Column()} | columns.shown(type(rows[0][2]))
    return grid(table.assign(sent_bytes=table.sent_bytes / 1e6), known)


def claims(judged: Sequence[Claim]) -> Grid:
    """Format claims, one line each, with packets and virtual time side by side."""
    return grid(pd.DataFrame(lines(judged), columns=list(Line._fields)), CLAIMS)


def published(table: pd.DataFrame) -> Grid:
    """Format `published.Side` rows: the paper's number beside the measured one."""
    return grid(table, PUBLISHED)


def regret(table: pd.DataFrame) -> Grid:
    """Format the result of `regret.regret`, with a row per run."""
    return grid(table.assign(by=table.by.map(SPOKEN)), REGRET)


def progress(table: pd.DataFrame) -> Grid:
    """Format `progress.over_oracle`: a row per method."""
    return grid(table, PROGRESS)


def left_out(runs: pd.DataFrame) -> Grid:
    """Format the `load.runs` rows that do not count, with the reason."""
    invalid = (runs.state == "invalid") & (runs.reasons != "")
    all_of_them = "invalid: " + runs.reasons.str.replace("\n", "; ")
    return grid(runs.assign(why=runs.left_out.mask(invalid, all_of_them)), LEFT_OUT)
