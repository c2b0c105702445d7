"""The decision that a comparison is made for: who reaches the target first, by how much, who never.

A method reaches the target where each of its runs does. One that does in some runs has a bound,
as have those that never do: what they took is at least the time of their runs. A run that reached
it and diverged afterwards has not reached it. An oracle knows what no method can know, so it is
told apart and has no place.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.analysis import metrics, ratios, statistics
from harness.reporting.analysis.grid import figure
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.analysis.regret import ORACLE
from harness.reporting.analysis.statistics import Interval

MOST_NAMED = 6  # methods in one sentence
ALWAYS, SOMETIMES, NEVER = 0, 1, 2


class MethodStanding(NamedTuple):
    """Standing of one method, over its runs under one setting."""

    method: str
    place: int | None  # 1 is first; None where it is not ranked
    time_s: Interval  # to the target; a bound without interval where a run did not reach it
    reached: int  # runs that reached the target and did not diverge
    runs: int
    diverged: int
    final: float  # quality at the end, mean over runs
    over_first: Ratio | None  # its time over the first's, run by run of one seed
    oracle: bool

    @property
    def always(self) -> bool:
        """Every run reached the target."""
        return self.reached == self.runs

    @property
    def never(self) -> bool:
        return self.reached == 0


class Decision(NamedTuple):
    """Methods in order: those that always reach the target by time, then bounds, then oracles."""

    metric: str  # "" where nothing was evaluated
    target: float | None
    baseline: str
    standings: tuple[MethodStanding, ...]

    @property
    def ranked(self) -> list[MethodStanding]:
        """Return the methods that have a place, the first at the front."""
        return [each for each in self.standings if each.place is not None]

    @property
    def decides(self) -> bool:
        """There is a target, and evaluations to hold against it."""
        return self.target is not None and self.metric != ""


def decide(measured: pd.DataFrame, target: float | None, baseline: str) -> Decision:
    """Who reaches `target` first; `measured` has a `RunMetrics` per row, all of one setting.

    Without a target nothing is ranked, and the baseline comes first.
    """
    known = measured.final.notna().any()
    metric = str(measured.metric.iloc[0]) if known else ""
    aimed = None if target is None or pd.isna(target) else float(target)
    met = measured.reached.astype(bool) & ~measured.diverged.astype(bool)
    counted = measured.assign(reached=met & measured.time_to_target_s.notna())
    groups = counted.groupby("method")
    found = [_standing(str(method), runs) for method, runs in groups]
    decided = Decision(metric, aimed, baseline, ())
    if not decided.decides:
        found.sort(key=lambda each: (each.oracle, each.method != baseline, each.method))
        return decided._replace(standings=tuple(found))
    found.sort(key=lambda each: _order(each, metric))
    return decided._replace(standings=tuple(_placed(found, counted)))


def _standing(method: str, runs: pd.DataFrame) -> MethodStanding:
    time_s, reached = statistics.interval(runs.time_to_target_s), int(runs.reached.sum())
    if reached < len(runs):
        time_s = Interval(time_s.mean, float("nan"), float("nan"))
    return MethodStanding(
        method,
        None,
        time_s,
        reached,
        len(runs),
        int(runs.diverged.sum()),
        float(runs.final.mean()),
        None,
        bool((runs.controller == ORACLE).all()),
    )


def _order(each: MethodStanding, metric: str) -> tuple[Any, ...]:
    """Who always reaches it by time, who does in some runs by how many, the rest by quality."""
    kind = ALWAYS if each.always else NEVER if each.never else SOMETIMES
    goal = metrics.quality(metric, each.final)
    by = {
        ALWAYS: (each.time_s.mean,),
        SOMETIMES: (-each.reached / each.runs, each.time_s.mean),
        NEVER: (each.diverged > 0, pd.isna(goal), -goal if pd.notna(goal) else 0.0),
    }[kind]
    return (each.oracle, kind, *by, each.method)


def _placed(found: Sequence[MethodStanding], measured: pd.DataFrame) -> list[MethodStanding]:
    """With places, and times over the first's, where there is a first."""
    ranked = [each.method for each in found if each.always and not each.oracle]
    placed = []
    for each in found:
        place = ranked.index(each.method) + 1 if each.method in ranked else None
        over = None
        if ranked and place != 1:
            over = ratios.paired(measured, "time_to_target_s", each.method, ranked[0])
        placed.append(each._replace(place=place, over_first=over))
    return placed


def arranged(table: pd.DataFrame, decided: Decision) -> pd.DataFrame:
    """`metrics.compare` in the order of the decision, with `place` and `over_first`.

    `reached` leaves out runs that diverged afterwards.
    """
    of = {each.method: each for each in decided.standings}
    order = sorted(table.index, key=lambda at: list(of).index(table.method[at]))
    rows = table.loc[order].reset_index(drop=True)
    stands = [of[method] for method in rows.method]
    over = [each.over_first or _nothing() for each in stands]
    rows = rows.assign(
        reached=[each.reached for each in stands],
        time_to_target_s_low=[each.time_s.low for each in stands],
        time_to_target_s_high=[each.time_s.high for each in stands],
    )
    told = pd.DataFrame(
        {
            "place": pd.Series([each.place for each in stands], dtype=float),
            "over_first": [each.mean for each in over],
            "over_first_low": [each.low for each in over],
            "over_first_high": [each.high for each in over],
        }
    )
    return rows.join(told)


def _nothing() -> Ratio:
    nan = float("nan")
    return Ratio(nan, nan, nan, 0)


def sentences(decided: Decision) -> list[str]:
    """The decision in words: first who is first and by how much, then who never gets there."""
    if not decided.metric:
        return ["No run was evaluated, so no method is ranked by its time to a target."]
    if decided.target is None:
        return [_without_target(decided)]
    return [_headline(decided), *_rest(decided)]


def _without_target(decided: Decision) -> str:
    metric = _metric(decided)
    of_baseline = [each for each in decided.standings if each.method == decided.baseline]
    told = "No target is set, so no method is ranked by when it gets there: before the runs, write "
    told += f"target.value= and the {metric} to reach"
    ends = [f"; {each.method} ends at {figure(each.final)}" for each in of_baseline]
    return "".join([told, *ends, "."])


def _headline(decided: Decision) -> str:
    goal, ranked = _goal(decided), decided.ranked
    if not ranked:
        return _nobody(decided)
    first = ranked[0]
    said = f"{first.method} reaches {goal} first, after {_time(first.time_s)}"
    if len(decided.standings) == 1:
        return f"{first.method} reaches {goal} after {_time(first.time_s)}; it ran alone."
    if len(ranked) == 1:
        return f"{said}; no other method reaches it{_in_every_run(decided)}."
    return f"{said}; {_lead(ranked[1])}."


def _in_every_run(decided: Decision) -> str:
    return " in every run" * any(0 < each.reached < each.runs for each in decided.standings)


def _nobody(decided: Decision) -> str:
    goal = _goal(decided)
    partly = [each for each in decided.standings if each.reached and not each.oracle]
    if partly:
        return f"No method reaches {goal} in every run."
    ends = [each for each in decided.standings if pd.notna(each.final) and not each.oracle]
    nearest = f"; {ends[0].method} comes nearest, at {figure(ends[0].final)}" if ends else ""
    return f"No method reaches {goal}{nearest}."


def _lead(after: MethodStanding) -> str:
    """By how much the first leads the next, and whether that is more than chance."""
    over = after.over_first
    if over is None or not over.seeds:
        return f"{after.method} is next, after {_time(after.time_s)}, with no seed in common"
    said = f"{after.method} takes {_times(over)}"
    undecided = over.seeds > 1 and not over.low > 1
    return said + (", so which of the two is sooner is undecided" if undecided else "")


def _rest(decided: Decision) -> list[str]:
    said = []
    stands = [each for each in decided.standings if not each.oracle]
    base = next((each for each in decided.ranked[2:] if each.method == decided.baseline), None)
    if base is not None and base.over_first is not None and base.over_first.seeds:
        said.append(f"{base.method}, the baseline, takes {_times(base.over_first)}.")
    for each in stands:
        if 0 < each.reached < each.runs:
            said.append(f"{each.method} reaches it in {each.reached} of {each.runs} runs.")
    never = [f"{each.method}{' (diverged)' * bool(each.diverged)}" for each in stands if each.never]
    if never and (decided.ranked or len(never) < len(stands)):
        said.append(f"Never: {_named(never)}.")
    return said + [_of_oracle(each, decided) for each in decided.standings if each.oracle]


def _of_oracle(each: MethodStanding, decided: Decision) -> str:
    told = f"{each.method} knows the profile, and is no choice"
    if not each.always:
        return f"{told}; it reaches the target in {each.reached} of {each.runs} runs."
    return f"{told}; it takes {_time(each.time_s)}."


def _named(methods: Sequence[str]) -> str:
    more = len(methods) - MOST_NAMED
    return ", ".join(methods[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _times(over: Ratio) -> str:
    """`1.3 times as long (1.2 to 1.4, 6 pairs of runs)`."""
    times = f"{factor(over.mean)} times as long"
    if over.seeds < 2:
        return f"{times} (one pair of runs: no interval)"
    ends = "" if pd.isna(over.low) else f"{factor(over.low)} to {factor(over.high)}, "
    return f"{times} ({ends}{over.seeds} pairs of runs)"


def factor(value: float) -> str:
    """A ratio to two places, or three digits."""
    return f"{value:.2f}" if abs(value) < 10 else figure(value)


def _time(found: Interval) -> str:
    """`8.9 s (8.5 to 9.3)`."""
    ends = "" if pd.isna(found.low) else f" ({figure(found.low)} to {figure(found.high)})"
    return f"{figure(found.mean)} s{ends}"


def _goal(decided: Decision) -> str:
    return f"{_metric(decided)} {decided.target:g}"


def _metric(decided: Decision) -> str:
    return decided.metric.replace("_", " ")
