"""What a claim is, the runs that decide it, and a paper as the list of its claims.

A study's claims.py makes a `PaperClaims` called `PAPER` and gives it functions from `Runs` to
`Found`, in the order of the paper. A function asks for the runs it needs; what is not there makes
its claim not testable.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from harness.reporting.analysis import load, metrics, ratios
from harness.reporting.analysis.ratios import Ratio

HOLDS, FAILS, NOT_TESTABLE = "holds", "does not hold", "not testable"
OVER_DENSE = ("speedup", "normalised_throughput")  # columns


class Claim(NamedTuple):
    """A statement of a paper and the verdict on it."""

    id: str  # figure, table or place in the text
    text: str
    verdict: str  # HOLDS | FAILS | NOT_TESTABLE
    measured: str  # the numbers that decide it
    reason: str = ""  # why it does not hold, or is not testable
    runs: tuple[str, ...] = ()  # ids of those that were looked at
    network: str = ""  # packets | virtual; empty: no runs at all, or predicted
    scale: str = ""  # of the runs: paper | laptop


class Found(NamedTuple):
    """Result of a claim's function."""

    holds: bool | None  # None: there are runs, but they do not decide
    measured: str
    reason: str = ""  # not told of a claim that holds


class NotTestable(Exception):
    """Reason why no run can decide a claim."""


class NoSuchRuns(NotTestable):
    """No run exists that could decide a claim."""


class Group:
    """Runs of one setting; remembers in `seen` the ids of those asked for, and `columns`."""

    def __init__(self, rows: pd.DataFrame, seen: dict[str, None], columns: set[str]) -> None:
        self._rows, self._seen, self._columns = rows, seen, columns
        self.experiment: str = " and ".join(dict.fromkeys(rows.experiment))

    def rows(self, *methods: str) -> pd.DataFrame:
        """Rows of `metrics.table` of `methods`, all without; `NoSuchRuns` names a missing one."""
        missing = [method for method in methods if method not in set(self._rows.method)]
        if missing:
            raise NoSuchRuns(f"no runs of {', '.join(missing)} in {self.experiment}")
        found = self._rows[self._rows.method.isin(methods)] if methods else self._rows
        self._seen.update(dict.fromkeys(found.run_id))
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
        """Mean over seeds by method, in the order asked; `NoSuchRuns` where none has it."""
        self._columns.add(column)
        means = self.rows(*methods).groupby("method")[column].mean()
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
        """Ratio of two methods, paired by seed; `NoSuchRuns` if no seed has the number of both."""
        self._columns.add(column)
        found = ratios.paired(self.rows(over, under), column, over, under)
        if not found.seeds:
            raise NoSuchRuns(f"no seed with {column} of {over} and {under} in {self.experiment}")
        return found


class Runs:
    """Rows of `metrics.table` of one network kind and one scale."""

    def __init__(self, table: pd.DataFrame, workers: int, scale: str) -> None:
        self._table, self._workers, self.scale = table, workers, scale
        self.seen: dict[str, None] = {}
        self._columns: set[str] = set()

    def of(self, *experiments: str, **conditions: Any) -> Group:
        """Runs of one setting of `experiments` under which `conditions` are equal, or `NoSuchRuns`.

        `conditions` are keys of the configuration, `__` for their dots. Of several settings that
        with most methods counts, then that of the paper's number of workers, then most runs.
        Settings of several experiments are one where nothing else sets them apart.
        """
        rows = self._table[self._table.experiment.isin(experiments)]
        wanted = {key.replace("__", "."): value for key, value in conditions.items()}
        for key, value in wanted.items():
            rows = rows.loc[[told.get(key) == value for told in rows.conditions]]
        one = rows.setting if len(experiments) == 1 else rows.conditions.map(_but_experiment)
        groups = [group for _, group in rows.groupby(one, sort=False)]
        whole = [group for group in groups if set(group.experiment) == set(experiments)]
        if not whole:
            told = "".join(f", {key} {value}" for key, value in wanted.items())
            alike = ", alike in all else" if groups else ""
            raise NoSuchRuns(f"no runs of {' and '.join(experiments)}{told}{alike}")
        return Group(max(whole, key=self._standing), self.seen, self._columns)

    def unlike(self) -> str:
        """Reason why the model differs from the paper's, for comparisons with dense."""
        if "unlike" not in self._table:
            return ""
        rows = self._table[self._table.run_id.isin(list(self.seen))]
        compares = rows.dense.astype(bool).any() or self._columns & set(OVER_DENSE)
        return next(filter(None, rows.unlike), "") if compares else ""

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


class PaperClaims:
    """Claims in the order in which they are declared."""

    def __init__(self, name: str, workers: int) -> None:
        self.name = name  # of its file of published numbers
        self.workers = workers
        self._declared: list[Declared] = []

    def says(self, id: str, text: str, decide: Callable[[Runs], Found]) -> None:
        """Adds a claim, and the function that decides it."""
        self._declared.append(Declared(id, text, decide))

    def judge(self, table: pd.DataFrame, network: str, scale: str) -> list[Claim]:
        """Every claim, by the runs of one network kind and one scale."""
        judged = []
        for declared in self._declared:
            runs = Runs(table, self.workers, scale)
            claim = _decided(declared, runs)
            judged.append(claim._replace(runs=tuple(runs.seen), network=network, scale=scale))
        return judged


def _decided(declared: Declared, runs: Runs) -> Claim:
    try:
        found = declared.decide(runs)
    except NotTestable as missing:
        return Claim(declared.id, declared.text, NOT_TESTABLE, "", str(missing))
    if unlike := runs.unlike():
        why = f"not decidable, as the stand-in is not like the paper's model: {unlike}"
        return judged_claim(declared.id, declared.text, None, found.measured, why)
    return judged_claim(declared.id, declared.text, *found)


def judged_claim(id: str, text: str, holds: bool | None, measured: str, reason: str = "") -> Claim:
    """A claim that numbers decided; or did not, where `holds` is None."""
    verdict = NOT_TESTABLE if holds is None else HOLDS if holds else FAILS
    return Claim(id, text, verdict, measured, "" if holds else reason)


def listed(values: dict[str, float], digits: int = 3) -> str:
    """`a 1.23, b 45.6`."""
    return ", ".join(f"{name} {value:.{digits}g}" for name, value in values.items())


def spoken(found: Ratio) -> str:
    """`1.23 (1.1 to 1.3)`; a bound as `at least 1.23`, and nothing in brackets with one seed."""
    bound = {"low": "at least ", "high": "at most ", "unknown": "unknown, about "}
    told = f"{bound.get(found.bound, '')}{found.mean:.3g}"
    return told if found.low != found.low else f"{told} ({found.low:.3g} to {found.high:.3g})"
