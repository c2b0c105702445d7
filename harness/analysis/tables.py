"""Tables of a report, as they are printed: methods compared, proof, runs left out."""

import textwrap
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

WIDTH = 100  # where the output is no terminal
METHOD_WIDTH = 20  # a longer name is folded
COLUMNS = {
    "time_s": "time\n(s)",
    "throughput": "samples\n/s",
    "time_to_target_s": "target\nafter (s)",
    "speedup": "norm.\nspeed-up",
    "normalised_throughput": "norm.\nsamples/s",
    "density": "mean\ndensity",
    "volume_ratio": "volume\nratio",
}
PROOF_COLUMNS = (
    "runs",
    "probe over\nexpected",
    "unshaped\nover needed",
    "idle\n(%)",
    "plan late\n(ms, 99 %)",
    "drops",
    "bytes seen\nover sent",
)


ERROR_COLUMNS = {
    "pairs": "pairs",
    "median": "step: median\nerror (%)",
    "worst": "worst",
    "controlled": "with a\ncontroller",
    "density_median": "density: median\nerror (%)",
    "density_worst": "worst",
}

PLAN_COLUMNS: tuple[str, ...] = (
    "runs",
    "steps",
    "time\n(s)",
    "samples\n/s",
    "density",
    "MB sent\na worker",
)
PLAN_COLUMNS += ("step:\nbefore", "compute\n(s)", "compress\n(s)", "exposed\n(s)", "in all\n(s)")


def comparison(compared: pd.DataFrame) -> Table:
    """Of `metrics.compare`: a row per method."""
    table = _table(compared.method)
    metric = compared.metric.iloc[0].replace("_", "\n")
    for header in ["seeds", f"final\n{metric or 'quality'}", *COLUMNS.values()]:
        table.add_column(header, justify="right")
    for _, row in compared.iterrows():
        cells = [_cell(row, column) for column in ["final", *COLUMNS]]
        table.add_row(row.method, str(row.seeds), *cells)
    return table


def _table(methods: pd.Series) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    longest = methods.str.len().max()
    table.add_column("method", overflow="fold", min_width=min(METHOD_WIDTH, longest))
    return table


def proof(worst: pd.DataFrame) -> Table:
    """Of `proof.by_method`: a row per method, the worst of its runs."""
    table = _table(worst.method)
    for header in PROOF_COLUMNS:
        table.add_column(header, justify="right")
    for _, row in worst.iterrows():
        low, high = _number(row.bytes_low, 4), _number(row.bytes_high, 4)
        table.add_row(
            row.method,
            str(row.runs),
            _number(row.probe, 4),
            _number(row.headroom),
            _number(100 * row.idle_share, 2),
            _number(row.late_ms, 2),
            _number(row.drops),
            low if low == high else f"{low}–{high}",
        )
    return table


def agreement(pairs: pd.DataFrame) -> Table:
    """Of `agreement.paired`: a row per pair of runs."""
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("condition", "method"):
        table.add_column(name, overflow="fold")
    step, density = ("real\nstep (s)", "virtual"), ("real\ndensity", "virtual")
    for header in ("workers", *step, "error\n(%)", *density, "error\n(%)"):
        table.add_column(header, justify="right")
    rows: Any = pairs.itertuples()
    for row in rows:
        densities = [row.real_density, row.virtual_density, 100 * row.density_error]
        chosen = map(_number, densities) if row.controlled else [""] * 3
        steps = [f"{row.real_s:.4f}", f"{row.virtual_s:.4f}", f"{100 * row.error:+.1f}"]
        table.add_row(row.condition, row.method, str(row.workers), *steps, *chosen)
    return table


def errors(summaries: pd.DataFrame) -> Table:
    """Of `agreement.by`: a row per group, whose columns come first."""
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    groups = [str(name) for name in summaries if name not in ERROR_COLUMNS]
    for name in groups:
        table.add_column(name, overflow="fold")
    for header in ERROR_COLUMNS.values():
        table.add_column(header, justify="right")
    for _, row in summaries.iterrows():
        shares = ("median", "worst", "density_median", "density_worst")
        cells = [_percent(row[n]) if n in shares else str(row[n]) for n in ERROR_COLUMNS]
        table.add_row(*map(str, row[groups]), *cells)
    return table


def plan(rows: list[tuple[str, int, Any]], apart: list[str]) -> Table:
    """Of method, number of runs and `plan.Prediction`; `apart` says what else sets rows apart."""
    table = _table(pd.Series([method for method, _, _ in rows]))
    if any(apart):
        table.add_column("setting", overflow="fold", min_width=min(24, max(map(len, apart))))
    for header in PLAN_COLUMNS:
        table.add_column(header, justify="right")
    for (method, runs, found), setting in zip(rows, apart, strict=True):
        cells = (found.time_s, found.samples_per_s, found.density, found.sent_bytes / 1e6)
        parts = (found.before_s, found.compute_s, found.compress_s, found.exposed_s, found.step_s)
        told = [method, *([setting] if any(apart) else []), str(runs), str(found.steps)]
        table.add_row(*told, *(_number(value) for value in (*cells, *parts)))
    return table


def plan_in_all(rows: list[tuple[str, int, Any]]) -> str:
    """What all runs take, one after the other."""
    real = [runs * found.real_s for _, runs, found in rows if found.real_s is not None]
    emulated = sum(runs * found.time_s for _, runs, found in rows)
    count = sum(runs for _, runs, _ in rows)
    said = f"{count} run{'s' * (count > 1)}, {_lasting(emulated)} emulated in all"
    if real:
        said += f"; {_lasting(sum(real))} of this machine, and what starting and evaluating takes"
    return f"{said}. Predicted: nothing was run."


def _lasting(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def left_out(runs: pd.DataFrame) -> list[str]:
    """Lines that name every run that does not count, and why; `runs` of `load.runs`, all of them.

    Each reason why a run is invalid has lines of its own.
    """
    absent = runs[runs.left_out != ""]
    if absent.empty:
        return []
    lines = [f"{len(absent)} of {len(runs)} runs are left out of averages and figures:"]
    for reason, group in absent.groupby("left_out"):
        rows: Any = group.itertuples()
        names = ", ".join(f"{row.method} seed {row.seed} ({row.run_id})" for row in rows)
        reasons = group.reasons.iloc[0].split("\n") if group.state.iloc[0] == "invalid" else []
        lines.append(f"  {'invalid' if reasons else str(reason)}: {names}")
        for each in reasons:
            fill = textwrap.TextWrapper(WIDTH, initial_indent="    - ", subsequent_indent="      ")
            lines += fill.wrap(each)
    return lines


def _cell(row: pd.Series, column: str) -> str:
    """Mean, and under it half the interval; "> 12" and how many runs reached a censored target."""
    mean, low, high = (row[column + end] for end in ("", "_low", "_high"))
    if column == "time_to_target_s" and row.reached < row.seeds and pd.notna(mean):
        return f"> {_number(mean)}\n{row.reached} of {row.seeds}"
    certain = pd.isna(low) or column in ("density", "volume_ratio")  # their intervals: see the csv
    return _number(mean) + ("" if certain else f"\n±{_number((high - low) / 2, digits=2)}")


def _number(value: float, digits: int = 3) -> str:
    if pd.isna(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def _percent(share: float) -> str:
    return "-" if pd.isna(share) else f"{100 * share:.1f}"
