"""Collects from its runs everything that the page of one experiment shows."""

from typing import Any, NamedTuple

import pandas as pd
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from harness.records.outputs import csv_text
from harness.reporting import claims
from harness.reporting.analysis import agreement, metrics, proof, tables
from harness.reporting.analysis.comparison import Comparison, differences, methods, notes
from harness.reporting.analysis.decision import named, sentences
from harness.reporting.analysis.figure_catalog import in_studies, quality
from harness.reporting.analysis.grid import Grid
from harness.reporting.analysis.progress import over_oracle
from harness.reporting.analysis.regret import regret
from harness.reporting.claims import published
from harness.reporting.figures.styles import Style, styles
from harness.reporting.figures.theme import spans_decades, thinned
from harness.reporting.page import commands, surroundings
from harness.reporting.page.html import without_folders
from harness.reporting.page.pictures import EmbeddedFigure, Pictures, data

DIGITS = 5  # significant digits of a number in a curve
DASH_PX = 2.0  # one unit of a dash pattern
BESIDE = ("network", "time_to_target", "quality_over_time")  # figures with their own place


class Setting(NamedTuple):
    """One comparison as the page shows it."""

    id: str
    title: str
    apart: str
    decision: list[str]  # sentences; the first is the headline
    first: EmbeddedFigure | None  # time to target
    curves: Markup | None  # `of`
    target: str
    table: Grid
    notes: list[str]
    csv: EmbeddedFigure
    pictures: Pictures
    ratio: Grid | None  # final quality over time
    ratio_picture: EmbeddedFigure | None
    progress: Grid | None  # over the oracle's
    network: EmbeddedFigure | None
    worst: Grid | None  # proof, by method; None in virtual time
    proofs: Grid | None


class Experiment(NamedTuple):
    """All values that the template of an experiment's page uses."""

    name: str
    ran: list[str]
    missing: list[str]  # one line that names the runs left out, if any
    names: dict[str, str]  # names by label, where they differ
    settings: list[Setting]
    pictures: Pictures
    ratio_is: str  # studies' names for final quality over time
    claims: Grid | None
    judged: dict[str, int]  # claims of papers by verdict, each decision once
    published: Grid | None
    regret: Grid | None
    agreement: Grid | None
    orders: Grid | None
    agreement_picture: EmbeddedFigure | None
    left_out: Grid | None
    facts: list[surroundings.Fact]
    commands: commands.Commands


def gather(
    runs: pd.DataFrame,
    compared: list[Comparison],
    drawn: dict[str, Pictures],
    pairs: pd.DataFrame,
    agreement_picture: EmbeddedFigure | None,
) -> Experiment:
    """Return what the page of one experiment shows; `runs` includes those that do not count.

    `drawn` has the pictures of each comparison and of the experiment by name, and `pairs` the rows
    of `agreement.paired`.
    """
    name = str(runs.experiment.iloc[0])
    absent, counted = runs[runs.left_out != ""], runs[runs.left_out == ""]
    labelled = metrics.table(counted)
    table = labelled.assign(
        method=labelled.method.map(dict(zip(runs.method, runs.name, strict=True)))
    )
    judged = [each for each in claims.judge(table) if each.runs]
    lost = regret(labelled)
    found = published.side_by_side(table)
    return Experiment(
        name=name,
        ran=_ran(runs, compared),
        missing=_missing(absent, len(runs)),
        names={said: name for said, name in methods(compared[0], compared).items() if said != name},
        settings=[_setting(each, compared, drawn.get(each.name, {})) for each in compared],
        pictures=drawn.get(name, {}),
        ratio_is=in_studies("quality_over_time"),
        claims=tables.claims(judged) if judged else None,
        judged=claims.counted(judged),
        published=None if found.empty else tables.published(found),
        regret=None if lost.empty else tables.regret(lost),
        agreement=None if pairs.empty else tables.agreement(pairs),
        orders=None if (ordered := agreement.orders(pairs)).empty else tables.orders(ordered),
        agreement_picture=agreement_picture,
        left_out=None if absent.empty else tables.left_out(absent),
        facts=surroundings.facts(counted.path),
        commands=commands.of_runs(list(counted.path)),
    )


def _ran(runs: pd.DataFrame, compared: list[Comparison]) -> list[str]:
    """Return lines of text on the runs: model, profile, network, methods, seeds, how many count."""
    counted = runs[runs.left_out == ""]
    first = counted.iloc[0]
    seeds = counted.seed.nunique()
    said = [
        f"{first.model} on {first.dataset}, {first.workers} workers, computation {first.compute}"
    ]
    profiles = ", ".join(map(str, counted.profile.dropna().unique()))
    said.append(f"profile: {profiles}" if profiles else "no profile")
    said += surroundings.forms(counted.path)
    kinds = ["virtual time, no packets" if each else "real packets" for each in (True, False)
             if (counted.simulated == each).any()]  # fmt: skip
    said.append("network: " + " and ".join(kinds))
    methods = counted.method.nunique()
    many = f"{methods} method{'s' * (methods > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    many += f", {len(compared)} settings" * (len(compared) > 1)
    said.append(f"{many}: {len(counted)} of {len(runs)} runs count")
    ended = sorted(each for each in counted.ended if each)
    return said + ([f"the last ended {ended[-1][:16].replace('T', ' ')} UTC"] if ended else [])


def _missing(absent: pd.DataFrame, count: int) -> list[str]:
    """Return one line that names the runs that do not count; [] if there are none."""
    rows: Any = absent.itertuples()
    each = [f"{row.method} seed {row.seed}" if pd.notna(row.method) else row.run_id for row in rows]
    said = f"{len(each)} of {count} runs are left out: {named(list(dict.fromkeys(each)))}"
    return [said] * bool(each)


def _setting(compared: Comparison, others: list[Comparison], pictures: Pictures) -> Setting:
    real = not compared.runs.simulated.all()
    worst = proof.by_method(compared.proofs, list(compared.table.method)) if real else None
    csv = csv_text(compared.named(compared.table)).encode()
    decided, progress = compared.decision, over_oracle(compared)
    return Setting(
        id=compared.name,
        title=compared.title,
        apart=", ".join(differences(compared, others)),
        decision=sentences(decided),
        first=pictures.get("time_to_target"),
        curves=quality_curves(compared),
        target=f"{decided.metric} {decided.target:g}" if decided.decides else "",
        table=tables.comparison(compared.table),
        notes=notes(compared),
        csv=EmbeddedFigure(f"{compared.name}.csv", data("text/csv", csv), 0, 0),
        pictures={name: each for name, each in pictures.items() if name not in BESIDE},
        ratio=tables.quality_over_time(compared.table),
        ratio_picture=pictures.get("quality_over_time"),
        progress=None if progress.empty else tables.progress(progress),
        network=pictures.get("network"),
        worst=None if worst is None else tables.proof(worst),
        proofs=tables.proof(compared.proofs) if real else None,
    )


def quality_curves(comparison: Comparison) -> Markup | None:
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
