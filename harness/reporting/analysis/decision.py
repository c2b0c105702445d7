"""Ranks methods by the time in which they reach the target, and puts the result in sentences.

A method is ranked if all its runs reach the target. If a run misses it, the method's time is a
lower bound, in which that run counts with its whole time. A run that reached the target and
diverged afterwards has missed it. An oracle knows the profile in advance, so it gets no place.

Only seeds that all ranked methods have are compared. A method that lacks some of them (its sweep is
unfinished, or a run failed) is incomplete and has no place.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.analysis import load, metrics, ratios, statistics
from harness.reporting.analysis.grid import figure
from harness.reporting.analysis.ratios import Ratio, SeedBlock
from harness.reporting.analysis.regret import ORACLE
from harness.reporting.analysis.statistics import Interval

MOST_NAMED = 6  # methods in one sentence
ALWAYS, SOMETIMES, NEVER = 0, 1, 2


class MethodStanding(NamedTuple):
    """Result of one method over its runs under one setting."""

    method: str
    place: int | None  # 1 is first; None if not ranked
    time_s: Interval  # to the target; a bound without interval if a run missed it
    reached: int  # runs that reached the target and did not diverge
    runs: int  # of the compared seeds, or of all its seeds if incomplete
    reached_of_all: int  # the same for the runs of all its seeds
    seeds: int  # pairs of seeds that it has
    complete: bool  # it has all seeds that are compared
    diverged: int
    final: float  # quality at the end, mean over runs
    over_first: Ratio | None  # its time over the first's, run by run of one seed
    oracle: bool
    late_s: float = 0.0  # largest delay of a run by other programs
    late_share: float = 0.0  # the same as a share of the run's time

    @property
    def always(self) -> bool:
        """True if every run reached the target."""
        return self.reached == self.runs

    @property
    def never(self) -> bool:
        """True if no run reached the target."""
        return self.reached == 0


class Decision(NamedTuple):
    """Methods in order: always at the target by time, then bounds, incomplete ones, and oracles."""

    metric: str  # "" without evaluations
    target: float | None
    baseline: str
    seeds: int  # pairs of seeds that are compared
    of_seeds: int  # pairs that any method has
    standings: tuple[MethodStanding, ...]

    @property
    def ranked(self) -> list[MethodStanding]:
        """The methods that have a place, the first at the front."""
        return [each for each in self.standings if each.place is not None]

    @property
    def choices(self) -> list[MethodStanding]:
        """The complete methods except oracles."""
        return [each for each in self.standings if each.complete and not each.oracle]

    @property
    def decides(self) -> bool:
        """True if there are a target and evaluations."""
        return self.target is not None and self.metric != ""


def decide(measured: pd.DataFrame, target: float | None, baseline: str) -> Decision:
    """Rank methods by the time in which they reach `target`.

    `measured` has a `RunMetrics` per row, all of one setting. Without a target or evaluations no
    method is ranked, and the baseline comes first.
    """
    known = measured.final.notna().any()
    metric = str(measured.metric.iloc[0]) if known else ""
    aimed = None if target is None or pd.isna(target) else float(target)
    met = measured.reached.astype(bool) & ~measured.diverged.astype(bool)
    counted = measured.assign(reached=met & measured.time_to_target_s.notna())
    block = compared_seeds(counted)
    rows = compared(counted)
    standings = [
        _standing(str(name), rows[rows.method == name], runs, block)
        for name, runs in counted.groupby("method")
    ]
    decided = Decision(metric, aimed, baseline, len(block.pairs), block.of, ())
    if not decided.decides:
        standings.sort(key=lambda one: (one.oracle, one.method != baseline, one.method))
        return decided._replace(standings=tuple(standings))
    standings.sort(key=lambda one: _order(one, metric))
    return decided._replace(standings=tuple(_placed(standings, counted)))


def compared_seeds(runs: pd.DataFrame) -> SeedBlock:
    """Return the methods and seeds of one setting whose means may be compared.

    `runs` has the columns method, controller, seed and network_seed. Oracles are ignored unless
    there are only oracles, so a seed that an oracle lacks is still compared.
    """
    oracle = runs.controller == ORACLE
    return ratios.seed_block(runs if oracle.all() else runs[~oracle])


def compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Return `runs` without the seeds that are not compared; incomplete methods keep all theirs."""
    block = compared_seeds(runs)
    incomplete = {name for name, rows in runs.groupby("method") if not _has_all(rows, block)}
    pairs = pd.MultiIndex.from_frame(runs[load.PAIR])
    return runs[pairs.isin(list(block.pairs)) | runs.method.isin(incomplete)]


def _has_all(runs: pd.DataFrame, block: SeedBlock) -> bool:
    """Return True if a method has each of the compared seeds, and there are any."""
    pairs = runs[load.PAIR].itertuples(index=False, name=None)
    return bool(block.pairs) and block.pairs <= set(pairs)


def _standing(
    method: str, runs: pd.DataFrame, all_runs: pd.DataFrame, block: SeedBlock
) -> MethodStanding:
    time_s, reached = statistics.interval(runs.time_to_target_s), int(runs.reached.sum())
    late_s, late_share = (
        float(runs[name].max()) if name in runs else 0.0 for name in ("late_s", "late_share")
    )
    if reached < len(runs):
        time_s = Interval(time_s.mean, float("nan"), float("nan"))
    elif late_s:
        low, high = time_s.mean if pd.isna(time_s.low) else time_s.low, time_s.high
        time_s = Interval(time_s.mean, low - late_s, time_s.mean if pd.isna(high) else high)
    return MethodStanding(
        method,
        place=None,
        time_s=time_s,
        reached=reached,
        runs=len(runs),
        reached_of_all=int(all_runs.reached.sum()),
        seeds=len(all_runs),
        complete=_has_all(runs, block),
        diverged=int(runs.diverged.sum()),
        final=float(runs.final.mean()),
        over_first=None,
        oracle=bool((runs.controller == ORACLE).all()),
        late_s=late_s,
        late_share=late_share,
    )


def _order(standing: MethodStanding, metric: str) -> tuple[Any, ...]:
    """Return the sort key of a standing.

    Methods that always reach the target are sorted by time, others by how often they do, and those
    that never do by quality. Incomplete methods and then oracles come last.
    """
    kind = ALWAYS if standing.always else NEVER if standing.never else SOMETIMES
    goal = metrics.quality(metric, standing.final)
    by = {
        ALWAYS: (standing.time_s.mean,),
        SOMETIMES: (-standing.reached / standing.runs, standing.time_s.mean),
        NEVER: (standing.diverged > 0, pd.isna(goal), -goal if pd.notna(goal) else 0.0),
    }[kind]
    return (standing.oracle, not standing.complete, kind, *by, standing.method)


def _placed(standings: Sequence[MethodStanding], measured: pd.DataFrame) -> list[MethodStanding]:
    """Return `standings` with places, and with times over the first method's if there is one."""
    ranked = [one.method for one in standings if one.always and one.complete and not one.oracle]
    placed = []
    for one in standings:
        place = ranked.index(one.method) + 1 if one.method in ranked else None
        over = None
        if ranked and place != 1:
            rows = compared(measured) if one.complete else measured
            over = ratios.paired(rows, "time_to_target_s", one.method, ranked[0])
        placed.append(one._replace(place=place, over_first=over))
    return placed


def arranged(table: pd.DataFrame, decided: Decision) -> pd.DataFrame:
    """Return `table`, `metrics.compare` of the `compared` runs, in the order of the decision.

    Adds the columns `place` and `over_first` with its interval. `reached` no longer counts runs
    that diverged afterwards.
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
    """Return the decision as sentences: the first method and its lead, then the other methods."""
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
    if not decided.seeds:
        return "No two methods have a seed in common, so none is first: run each with equal seeds."
    if not ranked:
        return _nobody(decided)
    first = ranked[0]
    said = f"{first.method} is first: it reaches {goal} after {_time(first)}"
    if len(decided.standings) == 1:
        return f"{first.method} reaches {goal} after {_time(first)}; it ran alone."
    if len(ranked) == 1:
        said += f"; no other {_complete(decided)}method reaches it{_in_every_run(decided)}"
    else:
        said += f"; {_lead(first, ranked[1])}"
    return f"{said}{_incomplete(decided)}."


def _in_every_run(decided: Decision) -> str:
    return " in every run" * any(0 < one.reached < one.runs for one in decided.standings)


def _complete(decided: Decision) -> str:
    """Return "complete " if an incomplete method reaches the target too, else ""."""
    return "complete " * any(one.reached and not one.complete for one in decided.standings)


def _incomplete(decided: Decision) -> str:
    """Return a clause with the methods that lack seeds: `; incomplete: topk (1 of 6 seeds)`."""
    short = [one for one in decided.standings if one.seeds < decided.of_seeds]
    names = [f"{one.method} ({one.seeds} of {_seeds(decided.of_seeds)})" for one in short]
    return f"; incomplete: {named(names)}" if names else ""


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def _nobody(decided: Decision) -> str:
    missing, none = _incomplete(decided), f"No {_complete(decided)}method reaches {_goal(decided)}"
    if any(one.reached for one in decided.choices):
        return f"{none} in every run{missing}."
    ends = [one for one in decided.choices if pd.notna(one.final)]
    nearest = f"; {ends[0].method} comes nearest, at {figure(ends[0].final)}" if ends else ""
    return f"{none}{nearest}{missing}."


def _lead(first: MethodStanding, after: MethodStanding) -> str:
    """Say how far the first method leads the next, unless chance or other programs may explain it.

    Runs that other programs delayed have an interval for their time. The order of two methods is
    certain if their intervals do not overlap.
    """
    over = after.over_first
    if over is None or not over.seeds:
        return f"{after.method} is next, after {_time(after)}"
    said = f"{after.method} takes {_times(over)}"
    last_s = first.time_s.mean if pd.isna(first.time_s.high) else first.time_s.high
    delayed = first.late_s > 0 or after.late_s > 0
    soonest_s = after.time_s.mean if pd.isna(after.time_s.low) else after.time_s.low
    overlap = delayed and soonest_s <= last_s
    if overlap or (over.seeds > 1 and not over.low > 1):
        return f"{said}, so which of the two is sooner is undecided"
    even_so = f"; other programs had the processors, and {first.method} is first even so"
    return said + even_so * delayed


def _rest(decided: Decision) -> list[str]:
    said = []
    stands = [one for one in decided.standings if not one.oracle]
    base = next((one for one in decided.ranked[2:] if one.method == decided.baseline), None)
    if base is not None and base.over_first is not None and base.over_first.seeds:
        said.append(f"{base.method}, the baseline, takes {_times(base.over_first)}.")
    if bounded := [f"{one.method} {one.late_share:.0%}" for one in stands if one.late_share]:
        within = named(bounded)
        said.append(f"Other programs had the processors; times count within: {within}.")
    for one in stands:
        over = one.over_first
        if not one.complete and one.always and over is not None and over.seeds:
            said.append(f"{one.method}, incomplete, takes {_times(over)} where both ran.")
        if 0 < one.reached_of_all < one.seeds:
            said.append(f"{one.method} reaches it in {one.reached_of_all} of {one.seeds} runs.")
    missed = [one for one in stands if not one.reached_of_all]
    never = [f"{one.method}{' (diverged)' * bool(one.diverged)}" for one in missed]
    if never and (decided.ranked or len(never) < len(stands)):
        said.append(f"Never: {named(never)}.")
    return said + [_of_oracle(one, decided) for one in decided.standings if one.oracle]


def _of_oracle(each: MethodStanding, decided: Decision) -> str:
    told = f"{each.method} knows the profile, and is no choice"
    if not each.always:
        return f"{told}; it reaches the target in {each.reached} of {each.runs} runs."
    return f"{told}; it takes {_time(each)}."


def named(methods: Sequence[str]) -> str:
    """Return the first MOST_NAMED of `methods` as a list in words, and the number of the others."""
    more = len(methods) - MOST_NAMED
    return ", ".join(methods[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _times(over: Ratio) -> str:
    """Format a ratio of times: `1.3 times as long (1.2 to 1.4, 6 pairs of runs)`."""
    times = f"{factor(over.mean)} times as long"
    if over.seeds < 2:
        return times
    ends = "" if pd.isna(over.low) else f"{factor(over.low)} to {factor(over.high)}, "
    return f"{times} ({ends}{over.seeds} pairs of runs)"


def factor(value: float) -> str:
    """Format a ratio with two decimals, or from 10 with three digits."""
    return f"{value:.2f}" if abs(value) < 10 else figure(value)


def _time(standing: MethodStanding) -> str:
    """Format a time: `8.9 s (8.5 to 9.3, 6 seeds)`, or `8.9 s (one seed: no interval)`."""
    mean, low, high = standing.time_s
    ends = "" if pd.isna(low) else f"{figure(low)} to {figure(high)}, "
    sure = "one seed: no interval" if standing.runs == 1 and not ends else _seeds(standing.runs)
    return f"{figure(mean)} s ({ends}{sure})"


def _goal(decided: Decision) -> str:
    return f"{_metric(decided)} {decided.target:g}"


def _metric(decided: Decision) -> str:
    return decided.metric.replace("_", " ")
