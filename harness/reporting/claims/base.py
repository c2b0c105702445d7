"""Claims, the runs that decide them, and `PaperClaims`, the list of a paper's claims.

A study's claims.py creates a `PaperClaims` called `PAPER` and adds functions from `Runs` to
`Found`, in the order of the paper. A function requests the runs it needs. The claim is "not
decidable here" if runs are missing or a check in `guards` objects. An insensitive task cannot
support "no loss", but it cannot invent a loss either. The paired interval decides the
verdict. The p value of a t test on log ratios is reported with it, also adjusted for all claims
(Holm).
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
OF_CONTENT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, OSError)
OVER_DENSE = ("speedup", "normalised_throughput")  # columns relative to the dense method


class Claim(NamedTuple):
    """A statement of a study and the verdict on it."""

    id: str  # figure, table or place in the text
    text: str
    verdict: str  # HOLDS | FAILS | UNDECIDED | NOT_DECIDABLE | BY_CONSTRUCTION
    measured: str  # the numbers that decide it
    reason: str = ""  # empty if the claim holds
    runs: tuple[str, ...] = ()  # ids of the runs that were read
    network: str = ""  # packets | virtual; empty without runs
    scale: str = ""  # of the runs: paper | laptop
    ours: bool = False  # claimed by the project, not by the paper
    repeats: str = ""  # id of the claim with the same decision
    p: float = float("nan")  # largest of its paired differences; nan if none decides it
    p_holm: float = float("nan")  # adjusted for all claims of the study


class Found(NamedTuple):
    """Result of a claim's function, before the guards have checked its runs."""

    holds: bool | None  # None: undecided
    measured: str
    reason: str = ""  # dropped if the claim holds
    loss: bool = False  # a measured loss of quality decides it: counts on insensitive tasks, too


class NotDecidable(Exception):
    """Raised by a claim's function if no run can decide the claim; the message is the reason."""


class NoSuchRuns(NotDecidable):
    """Raised if the runs that a claim needs do not exist."""


@dataclass
class LookedAt:
    """Runs and columns that a claim's function read; the guards check them afterwards."""

    runs: dict[str, None] = field(default_factory=dict)  # ids
    columns: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)  # objections of the guards
    p_values: list[float] = field(default_factory=list)


class Group:
    """Runs of one setting; records in `seen` which runs and columns the claim reads."""

    def __init__(self, rows: pd.DataFrame, seen: LookedAt) -> None:
        self._rows, self.seen = rows, seen
        self.experiment: str = " and ".join(dict.fromkeys(rows.experiment))

    def rows(self, *methods: str) -> pd.DataFrame:
        """Return the rows of `methods` (default: all methods) and record their runs as read.

        Raise NoSuchRuns, with the names, if a method has no run.
        """
        missing = [method for method in methods if method not in set(self._rows.method)]
        if missing:
            raise NoSuchRuns(f"no runs of {', '.join(missing)} in {self.experiment}")
        found = self._rows[self._rows.method.isin(methods)] if methods else self._rows
        self.seen.runs.update(dict.fromkeys(found.run_id))
        return found

    def method(self, **columns: Any) -> str:
        """Return the method with these values, such as compressor="topk"; NoSuchRuns if not one."""
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
        """Name of the uncompressed method, the reference; raise NoSuchRuns if it was not run."""
        found = metrics.baseline_of(self._rows)
        if found is None:
            raise NoSuchRuns(f"no runs without compression in {self.experiment}")
        return found

    def mean(self, column: str, *methods: str) -> dict[str, float]:
        """Return the mean of `column` by method, over the seeds that all `methods` have.

        Raise NoSuchRuns if a method has no run, all its values are NaN, or no seed is shared.
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
        """Return the method with the largest mean of `column`; raise NoSuchRuns as `mean` does."""
        means = self.mean(column, *methods)
        return max(methods, key=lambda method: means[method])

    def least(self, column: str, *methods: str) -> str:
        """Return the method with the smallest mean of `column`; raise NoSuchRuns as `mean` does."""
        means = self.mean(column, *methods)
        return min(methods, key=lambda method: means[method])

    def over_pairs(self, column: str, method: str) -> Ratio:
        """Return mean and interval of `column` over a method's runs; NoSuchRuns as in `mean`."""
        self.mean(column, method)
        return self.spread(self.rows(method)[column])

    @staticmethod
    def spread(values: pd.Series) -> Ratio:
        """Return the mean and 95 % interval of `values`, one per pair of seeds, as a `Ratio`."""
        return Ratio(*statistics.interval(values), len(values))

    def steps(self, *methods: str) -> dict[str, list[pd.DataFrame]]:
        """Return by method the steps.csv of each of its runs; raise NoSuchRuns if it has none."""
        return {m: [load.steps(path) for path in self.rows(m).path] for m in methods}

    def evaluations(self, method: str) -> list[pd.Series]:
        """Return for each run of a method the values of its target metric in step order."""
        rows: Any = self.rows(method).itertuples()
        tables = [(load.evaluations(row.path), row.metric) for row in rows]
        return [t[t.metric == metric].sort_values("step").value for t, metric in tables]

    def links(self, method: str) -> pd.DataFrame:
        """Read links.csv of the method's first run."""
        return load.links(self.rows(method).path.iloc[0])

    def ratio(self, column: str, over: str, under: str) -> Ratio:
        """Return `column` of `over` divided by `under`, paired by seed; NoSuchRuns if no pair."""
        self.seen.columns.add(column)
        found = self.paired(self.rows(over, under), column, over, under)
        if not found.seeds:
            raise NoSuchRuns(f"no seed with {column} of {over} and {under} in {self.experiment}")
        return found

    def paired(self, rows: pd.DataFrame, column: str, over: str, under: str) -> Ratio:
        """Return the paired ratio of two methods in `rows`; record doubts about it and its p value.

        The interval has no width if the runs are deterministic (`guards.exact`).
        """
        found = ratios.paired(rows, column, over, under)
        if column == "time_to_target_s":
            found = ratios.bracketed(rows, over, under, found)
        self.seen.doubts += [
            guards.missing(rows, column, over, under),
            guards.identical_work(rows, over, under),
        ]
        if guards.exact(rows):
            return found._replace(low=found.mean, high=found.mean)
        self.seen.p_values.append(found.p)
        return found


class Runs:
    """Rows of `metrics.table` of one network kind and one scale, with a record of those read."""

    def __init__(self, table: pd.DataFrame, workers: int, scale: str) -> None:
        self._table, self._workers, self.scale = table, workers, scale
        self.seen = LookedAt()

    def of(self, *experiments: str, **conditions: Any) -> Group:
        """Return runs of one setting of `experiments` under `conditions`, or raise NoSuchRuns.

        `conditions` are configuration keys (`__` for a dot) and their values. If several settings
        match, prefer most methods, then the paper's number of workers, then most runs. Runs of
        several experiments form one setting if nothing else differs.
        """
        wanted = {key.replace("__", "."): value for key, value in conditions.items()}
        asked = " and ".join(experiments) + "".join(f", {key} {of}" for key, of in wanted.items())
        if not set(experiments) & set(self._table.experiment):  # claims of other studies
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
        """Return why the runs that were read cannot decide the claim; "" if they can."""
        rows, table = self.rows, self._table
        dense = table[table.dense.astype(bool) & table.setting.isin(rows.setting)]
        doubts = [guards.too_few(rows), *self.seen.doubts, regime.differs(rows, dense)]
        doubts.append(guards.sent_more(rows))
        if self.seen.columns & guards.BY_QUALITY:
            doubts.append(guards.untrained(rows))
            if controls:
                doubts.append(guards.insensitive(rows, table, controls))
        elif self.seen.columns & guards.OF_TIME:
            doubts.append(guards.idle(pd.concat([rows, dense]).drop_duplicates("run_id")))
        return "; ".join(dict.fromkeys(filter(None, [*doubts, self._unlike(rows)])))

    @property
    def rows(self) -> pd.DataFrame:
        """The rows of all runs that the claim has read."""
        return self._table[self._table.run_id.isin(list(self.seen.runs))]

    def _unlike(self, rows: pd.DataFrame) -> str:
        """Return how the model differs from the paper's if a claim compares with dense, else "".

        Final quality at a fixed density does not depend on what the model's form hides.
        """
        compares = rows.dense.astype(bool).any() or self.seen.columns & set(OVER_DENSE)
        timeless = self.seen.columns == {"final"} and (rows.controller == guards.FIXED).all()
        if "unlike" not in rows or not compares or timeless:
            return ""
        found = next(filter(None, rows.unlike), "")
        return f"the stand-in is not like the paper's model: {found}" if found else ""

    def _standing(self, group: pd.DataFrame) -> tuple[int, bool, int]:
        as_published = group.workers.iloc[0] == self._workers
        return group.method.nunique(), as_published, len(group)


def _but_experiment(conditions: dict[str, Any]) -> str:
    return repr({key: value for key, value in conditions.items() if key != "experiment"})


class Declared(NamedTuple):
    """A claim as a study declares it, before it is judged."""

    id: str
    text: str
    decide: Callable[[Runs], Found]
    ours: bool
    repeats: str
    by_construction: str
    regime: Regime
    cells: Sequence[PublishedCell]


class PaperClaims:
    """The claims of one paper, in the order in which its claims.py declares them."""

    def __init__(self, name: str, workers: int, controls: Sequence[Controls] = ()) -> None:
        self.name = name  # as in the column `paper` of its published.csv
        self.workers = workers
        self.controls = controls  # one per workload; empty: claims on quality need no controls
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
        """Add a claim and the function that decides it.

        `ours`: the project makes the claim, not the paper. `repeats`: id of a claim with the same
        decision. `by_construction`: why no run could contradict the claim. `regime`: which runs are
        comparable. `cells`: the published numbers that the claim is about, by default all with this
        `id`; the claim is by construction if all of them were used as input of the runs.
        """
        on = [{"id": id}] if cells is None else cells
        declared = Declared(id, text, decide, ours, repeats, by_construction, regime, on)
        self.declared.append(declared)

    def judge(self, table: pd.DataFrame, network: str, scale: str) -> list[Claim]:
        """Judge every claim by `table`, runs of one network kind and scale; adjust p by Holm."""
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
    except OF_CONTENT as error:  # other runs happen to have this name
        said = str(error).split("\n")[0]
        return claim._replace(reason=f"its runs cannot be read so: {type(error).__name__}: {said}")
    given = origins.inputs(runs.rows, origins.fitted())
    if made := declared.by_construction or _made(declared, runs, given):
        return claim._replace(verdict=BY_CONSTRUCTION, measured=found.measured, reason=made)
    found = found._replace(measured=found.measured + origins.partly(declared.cells, given))
    claim = claim._replace(measured=found.measured)
    if doubts := runs.in_the_way(declared.regime, () if found.loss else controls):
        return claim._replace(reason=doubts)
    judged = judged_claim(declared.id, declared.text, *found[:-1])
    return judged._replace(p=max(runs.seen.p_values, default=float("nan")))


def _made(declared: Declared, runs: Runs, given: Sequence[PublishedCell]) -> str:
    """Return why these runs could not contradict the claim; "" if they could."""
    arithmetic = guards.arithmetic(runs.rows, runs.seen.columns)
    return origins.calibrated(declared.cells, given) or arithmetic


def judged_claim(id: str, text: str, holds: bool | None, measured: str, reason: str = "") -> Claim:
    """Return a claim with its verdict: undecided if `holds` is None. Drop `reason` if it holds."""
    verdict = UNDECIDED if holds is None else HOLDS if holds else FAILS
    return Claim(id, text, verdict, measured, "" if holds else reason)


def above(found: Ratio, limit: float = 1.0) -> bool | None:
    """Return True if the whole interval is above `limit`, False if none of it is, else None.

    A bound (censored time) is compared by its mean.
    """
    if found.bound:
        sure = found.bound == "low" and found.mean > limit
        return True if sure else False if below(found, limit) else None
    if found.mean == float("inf"):
        return True
    return True if found.low > limit else False if found.high <= limit else None


def below(found: Ratio, limit: float = 1.0) -> bool | None:
    """Return True if the whole interval is below `limit`, False if none of it is, else None.

    A bound (censored time) is compared by its mean.
    """
    if found.bound:
        if found.bound == "high" and found.mean < limit:
            return True
        return False if found.bound == "low" and found.mean > limit else None
    return True if found.high < limit else False if found.low >= limit else None


def within(found: Ratio, low: float, high: float) -> bool | None:
    """Return True if the whole interval is in [low, high], False if it is outside, else None."""
    if below(found, low) or above(found, high):
        return False
    inside = below(found, low) is False and above(found, high) is False
    return True if inside else None


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Return False if any verdict is False, else None if any is None, else True."""
    found = set(verdicts)
    return False if False in found else None if None in found else True


def listed(values: dict[str, float], digits: int = 3) -> str:
    """Format values by name with `digits` significant digits: `a 1.23, b 45.6`."""
    return ", ".join(f"{name} {value:.{digits}g}" for name, value in values.items())


def spoken(found: Ratio) -> str:
    """Format a ratio: `1.23 (1.1 to 1.3)`, or `1.23` alone; a bound is `at least 1.23`."""
    bound = {"low": "at least ", "high": "at most ", "unknown": "unknown, about "}
    told = f"{bound.get(found.bound, '')}{found.mean:.3g}"
    return told if found.low != found.low else f"{told} ({found.low:.3g} to {found.high:.3g})"
