"""Lists the figures of a comparison or experiment, each with its caption and a call to draw it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from harness.config import plain_yaml
from harness.records.metrics import RANGES
from harness.reporting.analysis import load, metrics, timeseries
from harness.reporting.analysis.comparison import Comparison, differences
from harness.reporting.analysis.decision import compared
from harness.reporting.analysis.regret import ORACLE
from harness.reporting.figures import (
    curves,
    decision,
    layout,
    link_load,
    methods,
    series,
    theme,
    timeline,
    topology,
    traffic,
)
from harness.reporting.figures.theme import Drawing, Figure
from harness.studies import studies

__all__ = ["Drawing", "of_comparison", "of_experiment", "quality"]


FEW_STEPS = 10  # a line with fewer points shows nothing


class _Shown(NamedTuple):
    """One run per method of a comparison: that of the lowest seed that is compared."""

    paths: pd.Series  # by method
    title: str
    rate: pd.DataFrame  # planned, of the run with the latest clock
    spans: list[link_load.FlowSpan]  # in which competing flows ran, of the same run


def of_comparison(comparison: Comparison) -> dict[str, Drawing]:
    """Return the drawings of one comparison by file name, the time to target first."""
    table, title, decided = comparison.table, comparison.title, comparison.decision
    target = decided.target
    metric = table.metric.iloc[0]
    named = f"{metric.replace('_', ' ') or 'quality'}"
    means = "Means over seeds with 95 % intervals"
    return {
        "time_to_target": Drawing(
            "Time to the target, and how many times the first's it is, with 95 % intervals. Below: "
            "methods that do not reach it, whose times are bounds. Hollow: other programs had the "
            "processors, so the time is anywhere in its interval.",
            lambda: decision.time_to_target(decided, title),
        ),
        "quality_curves": Drawing(
            f"{named.capitalize()} over training time. {means} shaded.",
            lambda: curves.quality_curves(quality(comparison), metric, title, target),
        ),
        "quality_time": Drawing(
            f"Final {named} against total training time. {means}.",
            lambda: methods.quality_time(table, title, target),
        ),
        "throughput": Drawing(
            f"Samples per second over {comparison.baseline}'s. {means}.",
            lambda: methods.throughput_bars(table, title),
        ),
        "quality_steps": Drawing(
            f"{named.capitalize()} over steps of training, whatever they took.",
            lambda: curves.quality_steps(quality(comparison), metric, title, target),
        ),
        "quality_density": Drawing(
            f"Final {named} against mean density. {means}.",
            lambda: methods.quality_density(table, title, target),
        ),
        "breakdown": Drawing(
            "Mean parts of a step; exposed communication is what backward did not hide"
            f"{in_studies('breakdown')}.",
            lambda: methods.breakdown_bars(table, title),
        ),
    } | (
        _of_runs(comparison)
        | _of_its_study("of_comparison", comparison.runs.experiment.iloc[0], comparison)
        | {
            "quality_over_time": Drawing(
                f"Final quality over the time of the run, over {comparison.baseline}'s"
                f"{in_studies('quality_over_time')}. {means}.",
                lambda: methods.quality_over_time_bars(_of_choices(comparison), title),
            )
        }
    )


def _of_its_study(function: str, experiment: str, of: Any) -> dict[str, Drawing]:
    """Return `function`'s drawings in drawings.py of the experiment's study; {} if it has none."""
    found: dict[str, Drawing] = {}
    for study in studies():
        if study.file(f"conf/experiment/{experiment}.yaml") and (own := study.module("drawings")):
            found |= getattr(own, function, lambda _: {})(of)
    return found


def in_studies(figure: str) -> str:
    """Return the names that studies' words.yaml give a figure, in brackets; "" if none does."""
    files = (study.file("words.yaml") for study in studies())
    found = [plain_yaml.from_file(file) or {} for file in files if file]
    words = [str(known[figure]) for known in found if figure in known]
    return f" ({'; '.join(words)})" if words else ""


def _of_choices(comparison: Comparison) -> pd.DataFrame:
    """Return the table without oracles, with a `remark` for methods that missed the target."""
    table = comparison.table[comparison.table.controller != ORACLE]
    missed = comparison.decision.decides & (table.reached < table.seeds)
    return table.assign(remark=missed.map({True: "target not reached", False: ""}))


def _of_runs(comparison: Comparison) -> dict[str, Drawing]:
    """Return the drawings that show one run of each method, or a single run."""
    shown, longest = _shown(comparison), _longest(comparison)
    steps = _compared(comparison, shown.paths)
    given = (shown.rate, shown.title, shown.spans)
    one = comparison.baseline if comparison.baseline in shown.paths else shown.paths.index[0]
    run = comparison.runs.set_index("path").loc[shown.paths[one]]
    one_run = f"{comparison.title}\n{one}, seed {run.seed}"

    def each(measure: Callable[[pd.DataFrame], pd.DataFrame]) -> dict[str, pd.DataFrame]:
        return {method: measure(table) for method, table in steps.items()}

    found = {
        "throughput_time": Drawing(
            "Samples per second over time, beside the planned rate of the slowest link.",
            lambda: series.throughput_time(each(timeseries.throughput), *given),
        ),
        "density_time": Drawing(
            "Density over time, beside the planned rate of the slowest link.",
            lambda: series.density_time(each(timeseries.density), *given),
        ),
        "goodput_time": Drawing(
            "What a worker received over time, communicating or not.",
            lambda: series.goodput_time(each(timeseries.goodput), *given),
        ),
        "running_goodput": Drawing(
            "What a worker received while it communicated: a running average.",
            lambda: series.running_goodput(each(timeseries.running_goodput), *given),
        ),
        "density_throughput": Drawing(
            "Density and samples per second of every step.",
            lambda: series.density_throughput(each(timeseries.by_step), shown.title),
        ),
        "links_time": Drawing(
            f"The links of one run ({one}): planned and carried rate, queue and drops.",
            lambda: _links_time(str(shown.paths[one]), one_run),
        ),
        "network": Drawing(
            "The network, and what its links went through.",
            lambda: _network(longest, comparison.title),
        ),
    }
    if comparison.runs.simulated.all():
        found["timeline"] = Drawing(
            "The last step of each method, as its first worker spent it.",
            lambda: _timeline(shown.paths, shown.title),
        )
    return found


def _compared(comparison: Comparison, paths: pd.Series) -> dict[str, pd.DataFrame]:
    """Return the steps of each method's run; replays are cut when the fastest one ends.

    A replay trains no model and the network is the same for all methods until then, so the rest of
    a slower replay is no result. Runs that train are kept whole, and so are replays if fewer than
    FEW_STEPS of one would remain.
    """
    steps = {str(method): comparison.steps[path] for method, path in paths.items()}
    if (comparison.runs.compute != "replay").any():
        return steps
    end_s = min(metrics.total_time_s(table) for table in steps.values())
    within = {method: table[table.time_s <= end_s] for method, table in steps.items()}
    enough = all(table.step.nunique() >= FEW_STEPS for table in within.values())
    return within if enough else steps


def of_experiment(comparisons: list[Comparison]) -> dict[str, Drawing]:
    """Return drawings that compare all settings of one experiment; {} if there is one setting."""
    if len(comparisons) < 2:
        return {}
    measured = [each.table.metric.iloc[0] for each in comparisons]
    named = {", ".join(differences(each, comparisons)) or each.name: each for each in comparisons}
    conditions = {said: quality(each) for said, each in named.items()}
    targets = {said: each.decision.target for said, each in named.items()}
    metric, title = max(measured), str(comparisons[0].runs.experiment.iloc[0])
    return {
        "quality_conditions": Drawing(
            "Quality over training time under each setting.",
            lambda: curves.quality_conditions(conditions, metric, title, targets=targets),
        )
    } | _of_its_study("of_experiment", title, named)


def quality(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """Return `metrics.curve` of each method over the compared seeds.

    Intervals end where the metric does: an accuracy of two seeds is not above 1.
    """
    metric = comparison.table.metric.iloc[0]
    ends = RANGES.get(metric)
    found = {}
    for method, runs in compared(comparison.runs).groupby("method"):
        rows = pd.concat([comparison.evaluations[path] for path in runs.path])
        table = metrics.curve(rows[rows.metric == metric])
        if ends:
            table[["low", "high"]] = table[["low", "high"]].clip(ends.low, ends.high)
        found[str(method)] = table
    return found


def _shown(comparison: Comparison) -> _Shown:
    by_seed = compared(comparison.runs).sort_values(load.PAIR)
    one_each = by_seed.drop_duplicates("method").set_index("method")
    seeds = ", ".join(map(str, sorted(set(one_each.seed))))
    longest = _longest(comparison)
    end_s = comparison.steps[longest].time_s.max()
    return _Shown(
        paths=one_each.path,
        title=f"{comparison.title}; seed {seeds}",
        rate=timeseries.planned_rate(load.links(longest)),
        spans=link_load.competing(longest, end_s),
    )


def _longest(comparison: Comparison) -> str:
    """Return the path of the run with the latest clock, which covers most of the profile."""
    return max(comparison.runs.path, key=lambda path: comparison.steps[path].time_s.max())


def _network(run: str, title: str) -> Figure:
    found = layout.read(run)
    if found is None:
        raise theme.NothingToDraw("no run says what its network was")
    return topology.network(found, title)


def _timeline(paths: pd.Series, title: str) -> Figure:
    """Draw the last step of each run as its first worker spent it."""
    found = {str(method): load.timeline(path) for method, path in paths.items()}
    for method, spans in found.items():
        found[method] = spans[(spans.step == spans.step.max()) & (spans["rank"] == 0)]
    return timeline.one_step(found, title)


def _links_time(run: str, title: str) -> Figure:
    links = load.links(run)
    of_links = link_load.over_time(links[links.link.isin(link_load.shown_links(links))])
    return traffic.links_time(of_links, link_load.competing(run, of_links.time_s.max()), title)
