"""The tables of a page, from the tables of the report."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.claims import Claim
from harness.claims.base import FAILS, HOLDS
from harness.page.grid import Cell, Column, Grid, figure, number, word

BOUNDS = {"low": "at least ", "high": "at most ", "unknown": "about "}
MARKS = {HOLDS: "good", FAILS: "bad"}
COMPARED = {
    "final": Column("final", True, "at the last evaluation"),
    "time_s": Column("time (s)", True, "of the whole run, emulated"),
    "throughput": Column("samples/s", True, "of all workers"),
    "time_to_target_s": Column("target after (s)", True, "emulated; > where it was not reached"),
    "speedup": Column("norm. speed-up", True, "final quality over time, over the baseline's"),
    "normalised_throughput": Column("norm. samples/s", True, "over the baseline's"),
    "density": Column("mean density", True, "share of gradient elements a worker sent"),
    "volume_ratio": Column("volume ratio", True, "bytes sent over those of dense all-reduce"),
}
PROOF = {
    "probe": Column("probe / expected", True, "payload measured before step 0"),
    "headroom": Column("unshaped / needed", True, "what the machine carries with open shapers"),
    "idle_share": Column("idle (%)", True, "of the processors"),
    "late_ms": Column("plan late (ms)", True, "99 % of changes came sooner"),
    "over_rate": Column("carried / allowed", True, "bytes over what the shaper's rates add up to"),
    "drops": Column("drops", True, "packets, of all links"),
    "retransmits": Column("retransmits", True, "of competing flows"),
    "bytes_low": Column("bytes, least", True, "frames through an uplink over what its node sent"),
    "bytes_high": Column("bytes, most", True, "likewise, of the link with most"),
}


def compared(table: pd.DataFrame) -> Grid:
    """Of `metrics.compare`: a row per method."""
    metric = table.metric.iloc[0].replace("_", " ") or "quality"
    columns = [Column("method"), Column("seeds", True)]
    columns += [COMPARED["final"]._replace(title=f"final {metric}"), *list(COMPARED.values())[1:]]
    rows: list[list[Cell]] = []
    for _, row in table.iterrows():
        means = [_mean(row, name) for name in COMPARED]
        rows.append([word(row.method), number(row.seeds), *means])
    return Grid(columns, rows)


def _mean(row: pd.Series, column: str) -> Cell:
    """Mean and interval, or how many seeds met the target, where some did not."""
    mean, low, high = (row[column + end] for end in ("", "_low", "_high"))
    if column == "time_to_target_s" and row.reached < row.seeds and pd.notna(mean):
        return Cell(f"> {figure(mean)}", f"{row.reached} of {row.seeds}", float(mean))
    interval = "" if pd.isna(low) else f"{figure(low)} to {figure(high)}"
    return number(mean, small=interval)


def proofs(table: pd.DataFrame) -> Grid:
    """Of `proof.Proof` rows, one a run, or of `proof.by_method`, the worst of each method."""
    of_runs = "run_id" in table
    first = [Column("seed", True), Column("run")] if of_runs else [Column("runs", True)]
    rows: list[list[Cell]] = []
    for _, row in table.iterrows():
        named = [number(row.seed), word(row.run_id)] if of_runs else [number(row.runs)]
        values = [100 * row[name] if name == "idle_share" else row[name] for name in PROOF]
        rows.append([word(row.method), *named, *(number(value, 4) for value in values)])
    return Grid([Column("method"), *first, *PROOF.values()], rows)


def claims(judged: Sequence[Claim]) -> Grid:
    """A row per claim of a paper."""
    titles = ("where", "what the paper says", "here", "measured", "why", "network", "scale", "runs")
    columns = [Column(title) for title in titles]
    columns[-1] = Column("runs", True)
    rows = [
        [
            word(each.id),
            word(each.text),
            word(each.verdict, MARKS.get(each.verdict, "")),
            word(each.measured),
            word(each.reason),
            word(each.network),
            word(each.scale),
            number(len(each.runs)),
        ]
        for each in judged
    ]
    return Grid(columns, rows)


def published(table: pd.DataFrame) -> Grid:
    """Of `published.Side` rows: the paper's number beside what runs say."""
    columns = [Column("where"), Column("model"), Column("network"), Column("method")]
    columns += [Column("metric"), Column("published", True), Column("measured", True)]
    columns += [Column("unit"), Column("comparable"), Column("note")]
    columns += [Column("runs over"), Column("scale")]
    rows: Any = table.itertuples()
    cells = []
    for row in rows:
        interval = "" if pd.isna(row.low) else f"{figure(row.low)} to {figure(row.high)}"
        measured = number(row.measured, small=interval)
        bounded = measured._replace(text=BOUNDS.get(row.bound, "") + measured.text)
        named = [word(each) for each in (row.id, row.model, row.network, row.method, row.metric)]
        comparable = word("yes" if row.comparable else "no")
        of_runs = [word(each) for each in (row.kind, row.scale)]
        values = [number(row.published, 4), bounded, word(row.unit), comparable, word(row.note)]
        cells.append([*named, *values, *of_runs])
    return Grid(columns, cells)


def regret(table: pd.DataFrame) -> Grid:
    """Of `regret.regret`: a row per run."""
    columns = [Column("method"), Column("seed", True)]
    columns += [Column("regret (%)", True, "time beyond the oracle's, over the oracle's")]
    columns += [Column("of"), Column("run")]
    rows: Any = table.itertuples()
    cells = []
    for row in rows:
        value = number(100 * row.regret)
        bounded = value._replace(text=BOUNDS.get(row.bound, "") + value.text)
        spoken = {"time_s": "the whole run", "time_to_target_s": "time to target"}.get(row.by)
        cells.append([word(row.method), number(row.seed), bounded, word(spoken), word(row.run_id)])
    return Grid(columns, cells)


def agreement(pairs: pd.DataFrame) -> Grid:
    """Of `agreement.Pair` rows: virtual time beside real packets."""
    columns = [Column("condition"), Column("method"), Column("workers", True), Column("seed", True)]
    columns += [Column("real step (s)", True), Column("virtual step (s)", True)]
    columns += [Column("error (%)", True, "virtual over real, less 1")]
    columns += [Column("real density", True), Column("virtual density", True)]
    rows: Any = pairs.itertuples()
    return Grid(
        columns,
        [
            [
                *(word(each) for each in (row.condition, row.method)),
                *(number(each) for each in (row.workers, row.seed)),
                *(number(each, 4) for each in (row.real_s, row.virtual_s)),
                number(100 * row.error),
                *(number(each) for each in (row.real_density, row.virtual_density)),
            ]
            for row in rows
        ],
    )


def left_out(runs: pd.DataFrame) -> Grid:
    """Of rows of `load.runs` that do not count."""
    rows: Any = runs.itertuples()
    cells = [
        [word(row.method), number(row.seed), word(row.run_id), word(_why(row))] for row in rows
    ]
    return Grid([Column("method"), Column("seed", True), Column("run"), Column("why")], cells)


def plain(table: pd.DataFrame) -> Grid:
    """A column for each of `table`, under its name."""
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    columns = [
        Column(str(name).replace("_", " "), is_number)
        for name, is_number in zip(table.columns, numeric, strict=True)
    ]
    shown = [number if is_number else word for is_number in numeric]
    rows = [
        [show(value) for show, value in zip(shown, row, strict=True)]
        for row in table.itertuples(index=False)
    ]
    return Grid(columns, rows)


def _why(run: Any) -> str:
    """All reasons of an invalid run, else what kept it from counting."""
    reasons = "; ".join(str(run.reasons).split("\n"))
    return f"invalid: {reasons}" if run.state == "invalid" and reasons else run.left_out
