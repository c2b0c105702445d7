"""What a claim is, the runs that decide it, and a paper as the list of its claims.

A study's claims.py makes a `PaperClaims` called `PAPER` and gives it functions from `Runs` to
`Found`, in the order of the paper. A function asks for the runs it needs; what is not there, and
what `guards` say of them, makes its claim not decidable here. A verdict is of the paired interval;
the p of flipped signs, and that for all claims together (Holm), stand beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.analysis import load, metrics, ratios, statistics
from harness.reporting.analysis.ratios import Ratio
from harness.reporting.claims import guards, origins
from harness.reporting.claims.guards import Controls, Regime
from harness.reporting.claims.origins import PublishedCell

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
NOT_DECIDABLE, BY_CONSTRUCTION = "not decidable here", "by construction"
ANY_REGIME = Regime()
OF_CONTENT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
OVER_DENSE = ("speedup", "normalised_throughput")  # columns


class Claim(NamedTuple):
    """A statement of a study and the verdict on it."""

    id: str  # figure, table or place in the text
    text: str
    verdict: str  # HOLDS | FAILS | UNDECIDED | NOT_DECIDABLE | BY_CONSTRUCTION
    measured: str  # the numbers that decide it
    reason: str = ""  # of every verdict but that it holds
    runs: tuple[str, ...] = ()  # ids of those that were looked at
    network: str = ""  # packets | virtual; empty: no runs at all
    scale: str = ""  # of the runs: paper | laptop
    ours: bool = False  # the project says it, not the paper
    repeats: str = ""  # id of the claim that the same decision is counted for
    p: float = float("nan")  # of its paired differences, the largest; nan where none decide it
    p_holm: float = float("nan")  # for all claims of the study together


class Found(NamedTuple):
    """Result of a claim's function."""

    holds: bool | None  # None: undecided
    measured: str
    reason: str = ""  # not told of a claim that holds


class NotDecidable(Exception):
    """Reason why no run can decide a claim."""


class NoSuchRuns(NotDecidable):
    """No run exists that could decide a claim."""


@dataclass
class LookedAt:
    """Runs and columns that a claim's function looked at, by which guards judge the runs."""

    runs: dict[str, None] = field(default_factory=dict)  # ids
    columns: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)  # why they decide nothing
    p_values: list[float] = field(default_factory=list)


class Group:
    """Runs of one setting; remembers in `seen` what was asked for."""

    def __init__(self, rows: pd.DataFrame, seen: LookedAt) -> None:
        self._rows, self.seen = rows, seen
        self.experiment: str = " and ".join(dict.fromkeys(rows.experiment))

    def rows(self, *methods: str) -> pd.DataFrame:
        """Rows of `metrics.table` of `methods`, all without; `NoSuchRuns` names a missing one."""
        missing = [method for method in methods if method not in set(self._rows.method)]
        if missing:
            raise NoSuchRuns(f"no runs of {', '.join(missing)} in {self.experiment}")
        found = self._rows[self._rows.method.isin(methods)] if methods else self._rows
        self.seen.runs.update(dict.fromkeys(found.run_id))
        return found

    def method(self, **columns: Any) -> str:
        """The one method whose columns are so, such as compressor="topk", or `NoSuchRuns`."""
        rows = self._rows
        for column, value in columns.items():
            rows = rows[rows[column] == value]
        found = sorted(set(rows.method))
        if len(found) != 1:
            said = ", ".join(f"{column} {value}" for column, value in columns.items())
            raise NoSuchRuns(
                f"{len(found) or 'no'} methods with {said} in {self.experiment}, not one"
            )
        return found[0]

    @property
    def dense(self) -> str:
        """The method that leaves nothing out, which others are held against; or `NoSuchRuns`."""
        found = metrics.baseline_of(self._rows)
        if found is None:
            raise NoSuchRuns(f"no runs without compression in {self.experiment}")
        return found

    def mean(self, column: str, *methods: str) -> dict[str, float]:
        """Return the mean by method, in the order asked, over the seeds that all of them have.

        `NoSuchRuns` where a method has no run, or none with the number, or no seed is shared.
        """
        self.seen.columns.add(column)
        rows = ratios.shared(self.rows(*methods))
        if rows.empty:
            asked = " and ".join(methods)
            raise NoSuchRuns(f"no seed with {column} of {asked} in {self.experiment}")
        means = rows.groupby("method")[column].mean()
        unknown = [method for method in methods if pd.isna(means[method])]
        if unknown:
            raise NoSuchRuns(f"no runs with {column} of {', '.join(unknown)} in {self.experiment}")
        return {method: float(means[method]) for method in methods}

    def best(self, column: str, *methods: str) -> str:
        """The method with the largest mean."""
        means = self.mean(column, *methods)
        return max(methods, key=lambda method: means[method])

    def least(self, column: str, *methods: str) -> str:
        """The method with the smallest mean."""
        means = self.mean(column, *methods)
        return min(methods, key=lambda method: means[method])

    def over_pairs(self, column: str, method: str) -> Ratio:
        """Mean over pairs with its interval, as a ratio to 1."""
        self.mean(column, method)
        return self.spread(self.rows(method)[column])

    @staticmethod
    def spread(values: pd.Series) -> Ratio:
        """Mean of one value a pair, with its interval, as a ratio to 1."""
        return Ratio(*statistics.interval(values), len(values))

    def steps(self, *methods: str) -> dict[str, list[pd.DataFrame]]:
        """The tables of steps of a method's runs."""
        return {m: [load.steps(path) for path in self.rows(m).path] for m in methods}

    def evaluations(self, method: str) -> list[pd.Series]:
        """Values of a method's runs in the order of their steps, of the metric of each."""
        rows: Any = self.rows(method).itertuples()
        tables = [(load.evaluations(row.path), row.metric) for row in rows]
        return [t[t.metric == metric].sort_values("step").value for t, metric in tables]

    def links(self, method: str) -> pd.DataFrame:
        """The table of links of a method's first run."""
        return load.links(self.rows(method).path.iloc[0])

    def ratio(self, column: str, over: str, under: str) -> Ratio:
        """Ratio of two methods, paired by seeds; `NoSuchRuns` if no pair has the number of both."""
        self.seen.columns.add(column)
        found = self.paired(self.rows(over, under), column, over, under)
        if not found.seeds:
            raise NoSuchRuns(f"no seed with {column} of {over} and {under} in {self.experiment}")
        return found

    def paired(self, rows: pd.DataFrame, column: str, over: str, under: str) -> Ratio:
        """Ratio of two methods in `rows` of this group; notes what is in its way."""
        found = ratios.paired(rows, column, over, under)
        self.seen.doubts += [
            guards.missing(rows, column, over, under),
            guards.identical_work(rows, over, under),
        ]
        if guards.exact(rows):
            return found._replace(low=found.mean, high=found.mean)
        self.seen.p_values.append(found.p)
        return found


class Runs:
    """Rows of `metrics.table` of one network kind and one scale."""

    def __init__(self, table: pd.DataFrame, workers: int, scale: str) -> None:
        self._table, self._workers, self.scale = table, workers, scale
        self.seen = LookedAt()

    def of(self, *experiments: str, **conditions: Any) -> Group:
        """Runs of one setting of `experiments` under which `conditions` are equal, or `NoSuchRuns`.

        `conditions` are keys of the configuration, `__` for their dots. Of several settings that
        with most methods counts, then that of the paper's number of workers, then most runs.
        Settings of several experiments are one where nothing else sets them apart.
        """
        wanted = {key.replace("__", "."): value for key, value in conditions.items()}
        asked = " and ".join(experiments) + "".join(f", {key} {of}" for key, of in wanted.items())
        if not set(experiments) & set(self._table.experiment):  # most claims are of another study
            raise NoSuchRuns(f"no runs of {asked}")
        rows = self._table[self._table.experiment.isin(experiments)]
        for key, value in wanted.items():
            rows = rows.loc[[told.get(key) == value for told in rows.conditions]]
        one = rows.setting if len(experiments) == 1 else rows.conditions.map(_but_experiment)
        groups = [group for _, group in rows.groupby(one, sort=False)]
        whole = [group for group in groups if set(group.experiment) == set(experiments)]
        if not whole:
            alike = ", alike in all else" if groups else ""
            raise NoSuchRuns(f"no runs of {asked}{alike}")
        return Group(max(whole, key=self._standing), self.seen)

    def in_the_way(self, regime: Regime, controls: Sequence[Controls]) -> str:
        """Reason why the runs that were looked at decide nothing; "" where they do."""
        rows, table = self.rows, self._table
        dense = table[table.dense.astype(bool) & table.setting.isin(rows.setting)]
        doubts = [guards.too_few(rows), *self.seen.doubts, regime.differs(rows, dense)]
        doubts.append(guards.sent_more(rows))
        if self.seen.columns & guards.BY_QUALITY:
            doubts.append(guards.untrained(rows))
            if controls:
                doubts.append(guards.insensitive(rows, table, controls))
        return "; ".join(dict.fromkeys(filter(None, [*doubts, self._unlike(rows)])))

    @property
    def rows(self) -> pd.DataFrame:
        """Return the rows of all runs that were looked at."""
        return self._table[self._table.run_id.isin(list(self.seen.runs))]

    def _unlike(self, rows: pd.DataFrame) -> str:
        """Reason why the model differs from the paper's, for comparisons with dense."""
        compares = rows.dense.astype(bool).any() or self.seen.columns & set(OVER_DENSE)
        if "unlike" not in rows or not compares:
            return ""
        found = next(filter(None, rows.unlike), "")
        return f"the stand-in is not like the paper's model: {found}" if found else ""

    def _standing(self, group: pd.DataFrame) -> tuple[int, bool, int]:
        as_published = group.workers.iloc[0] == self._workers
        return group.method.nunique(), as_published, len(group)


def _but_experiment(conditions: dict[str, Any]) -> str:
    return repr({key: value for key, value in conditions.items() if key != "experiment"})


class Declared(NamedTuple):
    """A claim before it is judged."""

    id: str
    text: str
    decide: Callable[[Runs], Found]
    ours: bool
    repeats: str
    by_construction: str
    regime: Regime
    cells: Sequence[PublishedCell]


class PaperClaims:
    """Claims in the order in which they are declared."""

    def __init__(self, name: str, workers: int, controls: Sequence[Controls] = ()) -> None:
        self.name = name  # of its file of published numbers
        self.workers = workers
        self.controls = controls  # of each workload, before its quality decides; none: nothing
        self.declared: list[Declared] = []

    def says(
        self,
        id: str,
        text: str,
        decide: Callable[[Runs], Found],
        *,
        ours: bool = False,
        repeats: str = "",
        by_construction: str = "",
        regime: Regime = ANY_REGIME,
        cells: Sequence[PublishedCell] | None = None,
    ) -> None:
        """Adds a claim, and the function that decides it.

        `ours`: the project's, not the paper's. `repeats`: id of a claim with the same decision.
        `by_construction`: why no run could say otherwise. `regime`: which runs are comparable.
        `cells`: what is published of it, which may be input of the runs; all of `id` without.
        """
        on = [{"id": id}] if cells is None else cells
        declared = Declared(id, text, decide, ours, repeats, by_construction, regime, on)
        self.declared.append(declared)

    def judge(self, table: pd.DataFrame, network: str, scale: str) -> list[Claim]:
        """Judge every claim by the runs of one network kind and one scale."""
        judged = []
        for declared in self.declared:
            runs = Runs(table, self.workers, scale)
            claim = _decided(declared, runs, self.controls)
            claim = claim._replace(runs=tuple(runs.seen.runs), network=network, scale=scale)
            judged.append(claim._replace(ours=declared.ours, repeats=declared.repeats))
        adjusted = statistics.holm([claim.p for claim in judged])
        return [claim._replace(p_holm=p) for claim, p in zip(judged, adjusted, strict=True)]


def _decided(declared: Declared, runs: Runs, controls: Sequence[Controls]) -> Claim:
    claim = Claim(declared.id, declared.text, NOT_DECIDABLE, "")
    try:
        found = declared.decide(runs)
    except NotDecidable as missing:
        return claim._replace(reason=str(missing))
    except OF_CONTENT as error:  # runs of that name and method, which are others all the same
        said = str(error).split("\n")[0]
        return claim._replace(reason=f"its runs cannot be read so: {type(error).__name__}: {said}")
    given = origins.inputs(runs.rows, origins.fitted())
    if made := declared.by_construction or _made(declared, runs, given):
        return claim._replace(verdict=BY_CONSTRUCTION, measured=found.measured, reason=made)
    found = found._replace(measured=found.measured + origins.partly(declared.cells, given))
    claim = claim._replace(measured=found.measured)
    if doubts := runs.in_the_way(declared.regime, controls):
        return claim._replace(reason=doubts)
    judged = judged_claim(declared.id, declared.text, *found)
    return judged._replace(p=max(runs.seen.p_values, default=float("nan")))


def _made(declared: Declared, runs: Runs, given: Sequence[PublishedCell]) -> str:
    """Why these runs could not say otherwise; "" where they could."""
    arithmetic = guards.arithmetic(runs.rows, runs.seen.columns)
    return origins.calibrated(declared.cells, given) or arithmetic


def judged_claim(id: str, text: str, holds: bool | None, measured: str, reason: str = "") -> Claim:
    """A claim that numbers decided; or did not, where `holds` is None."""
    verdict = UNDECIDED if holds is None else HOLDS if holds else FAILS
    return Claim(id, text, verdict, measured, "" if holds else reason)


def above(found: Ratio, limit: float = 1.0) -> bool | None:
    """True if a ratio's whole interval is above `limit`; None where it straddles, or is nan."""
    if found.bound:
        sure = found.bound == "low" and found.mean > limit
        return True if sure else False if below(found, limit) else None
    if found.mean == float("inf"):
        return True
    return True if found.low > limit else False if found.high <= limit else None


def below(found: Ratio, limit: float = 1.0) -> bool | None:
    """True if a ratio's whole interval is below `limit`; None where it straddles, or is nan."""
    if found.bound:
        if found.bound == "high" and found.mean < limit:
            return True
        return False if found.bound == "low" and found.mean > limit else None
    return True if found.high < limit else False if found.low >= limit else None


def within(found: Ratio, low: float, high: float) -> bool | None:
    """True if the whole interval is in [low, high], False if all of it is outside."""
    if below(found, low) or above(found, high):
        return False
    inside = below(found, low) is False and above(found, high) is False
    return True if inside else None


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """False if one is, else None if one is, else True."""
    found = set(verdicts)
    return False if False in found else None if None in found else True


def listed(values: dict[str, float], digits: int = 3) -> str:
    """`a 1.23, b 45.6`."""
    return ", ".join(f"{name} {value:.{digits}g}" for name, value in values.items())


def spoken(found: Ratio) -> str:
    """`1.23 (1.1 to 1.3)`; a bound as `at least 1.23`, and nothing in brackets with one seed."""
    bound = {"low": "at least ", "high": "at most ", "unknown": "unknown, about "}
    told = f"{bound.get(found.bound, '')}{found.mean:.3g}"
    return told if found.low != found.low else f"{told} ({found.low:.3g} to {found.high:.3g})"
