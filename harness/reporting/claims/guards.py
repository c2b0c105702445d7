"""What runs cannot decide, as checks of their rows that say why; "" where nothing is in the way.

Rows are of `metrics.table`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from harness.reporting.analysis import load, statistics

LEAST_PAIRS = 3  # fewer say nothing of scatter
FIXED = "fixed"  # the controller of a density that is set
UNTRAINED = 0.05  # of the first step's loss, which is chance's: less was learnt
BY_QUALITY = {"final", "best", "time_to_target_s", "convergence_s", "speedup"}  # columns
AS_ASKED = 1.25  # times the density asked for, which a claim names its method by
OF_SETTINGS = {"volume_ratio", "density"}  # columns that a fixed density decides
CERTAIN = {  # conditions
    "emulation.compute": "replay",
    "network.noise": 0.0,
    "network.exchange_noise": 0.0,
    "network.latency_noise": 0.0,
    "profile._target_": "profiles.static.Static",
}
CURVE = ["final", "best", "best_s", "loss_left"]
WHERE_AND_WHEN = ["overlap", "parallel"]  # two that differ in them may do the same at other times


class Regime(NamedTuple):
    """Regime of a claim: numbers of the paper's runs that decide what comes out."""

    workers: int | None = None
    sends: float | None = None  # of each coordinate, at least: steps times density
    ccr: tuple[float, float] | None = None  # communication over computation without compression
    steps: int | None = None  # at least

    def differs(self, rows: pd.DataFrame, dense: pd.DataFrame) -> str:
        """Say in what `rows` are of another regime; `dense` are those without compression there."""
        said = []
        if self.workers and (rows.workers != self.workers).any():
            said.append(f"{rows.workers.iloc[0]} workers, published with {self.workers}")
        if self.steps and (rows.steps < self.steps).any():
            said.append(f"{rows.steps.min():,} steps, published with {self.steps:,}")
        sends = (rows.steps * rows.density).groupby(rows.method).mean()
        if self.sends and len(few := sends[sends < self.sends]):
            told = ", ".join(f"{method} {value:.2g}" for method, value in few.items())
            said.append(f"each coordinate is sent less than {self.sends:g} times: {told}")
        if self.ccr and dense.empty:
            said.append("no run without compression tells communication over computation")
        elif self.ccr and not self.ccr[0] <= (ccr := dense.ccr.mean()) <= self.ccr[1]:
            least, most = self.ccr
            said.append(
                f"communication over computation is {ccr:.2g}, not within {least:g} to {most:g}"
            )
        return f"another regime: {'; '.join(said)}" if said else ""


class Controls(NamedTuple):
    """Controls that runs of one workload must pass before claims on it are decided."""

    model: str
    dataset: str
    experiment: str  # has all methods below and the dense one, which has to reach its target
    losing: dict[str, float]  # method: share of the dense quality that it has to lose, at least

    def insensitive(self, table: pd.DataFrame) -> str:
        """Say which control failed; of rows of one network kind and scale."""
        rows = table[table.experiment == self.experiment]
        rows = rows[(rows.model == self.model) & (rows.dataset == self.dataset)]
        dense = rows[rows.dense.astype(bool)]
        if dense.empty:
            where = f"{self.experiment}, the controls of {self.model} on {self.dataset}"
            return f"testbed insensitive: no runs of {where}"
        failed = [] if dense.reached.all() else ["no compression does not reach the target"]
        for method, least in self.losing.items():
            lost = self._lost(rows[rows.method == method], dense)
            if not lost >= least:
                failed.append(f"{method} loses {lost:.2g}, not {least:g}")
        return f"testbed insensitive: {'; '.join(failed)}" if failed else ""

    @staticmethod
    def _lost(rows: pd.DataFrame, dense: pd.DataFrame) -> float:
        """Least share of the dense quality lost, at 95 %; a diverged run lost all."""
        base = dense.set_index(load.PAIR).goal.reindex(pd.MultiIndex.from_frame(rows[load.PAIR]))
        kept = rows.goal.mask(rows.diverged, 0.0).to_numpy() / base.to_numpy()
        found = statistics.interval(pd.Series(1 - kept))
        return found.low


def insensitive(rows: pd.DataFrame, table: pd.DataFrame, controls: Sequence[Controls]) -> str:
    """Say of the workloads of `rows` which controls failed in `table`, or that one has none.

    A replay learns nothing, and needs none.
    """
    known = {(each.model, each.dataset): each for each in controls}
    said = []
    trained = rows[rows.loss_left.notna()]
    for model, dataset in trained[["model", "dataset"]].drop_duplicates().itertuples(index=False):
        of_workload = known.get((model, dataset))
        lacks = f"testbed insensitive: {model} on {dataset} has no controls"
        said.append(of_workload.insensitive(table) if of_workload else lacks)
    return "; ".join(filter(None, said))


def exact(rows: pd.DataFrame) -> bool:
    """Nothing in these runs is random: replays on a static network that has no noise."""
    return len(rows) > 0 and all(CERTAIN.items() <= told.items() for told in rows.conditions)


def too_few(rows: pd.DataFrame) -> str:
    """Every method needs `LEAST_PAIRS` pairs of seeds, where these make a difference."""
    if exact(rows):
        return ""
    fewest = int(rows.groupby("method").size().min()) if len(rows) else 0
    if fewest >= LEAST_PAIRS:
        return ""
    return f"{fewest} pair{'s' * (fewest != 1)} of seeds, needs {LEAST_PAIRS}"


def missing(rows: pd.DataFrame, column: str, over: str, under: str) -> str:
    """A pair without the number of both may be the one that was lost."""
    known = rows[rows[column].notna()]
    pairs = [
        set(known[known.method == method][load.PAIR].itertuples(index=False, name=None))
        for method in (over, under)
    ]
    asked = set(rows[load.PAIR].itertuples(index=False, name=None))
    lost = len(asked) - len(pairs[0] & pairs[1])
    return f"{lost} of {len(asked)} pairs lack {column} of {over} or {under}" if lost else ""


def identical_work(rows: pd.DataFrame, over: str, under: str) -> str:
    """Two methods with the same bytes and curves, which differ in no time of sending either."""
    columns = ["volume_ratio", *CURVE, *WHERE_AND_WHEN]
    one, other = (
        rows[rows.method == method].set_index(load.PAIR)[columns].sort_index()
        for method in (over, under)
    )
    trained = one.loss_left.notna().all() and len(one)
    same = (
        over != under
        and trained
        and one.drop(columns="best_s").equals(other.drop(columns="best_s"))
    )
    return f"{over} and {under} did identical work: same bytes, same curves" if same else ""


def untrained(rows: pd.DataFrame) -> str:
    """A baseline that has learnt nothing tells no loss of quality."""
    left = rows[rows.dense.astype(bool)].loss_left.mean()
    if not left > 1 - UNTRAINED:
        return ""
    return f"untrained: without compression {left:.3g} of the first loss are left"


def sent_more(rows: pd.DataFrame) -> str:
    """Methods at a fixed density that sent more than that, as thresholds may.

    Less is sent where there is nothing more: zeros never are.
    """
    fixed = rows[rows.controller == FIXED]
    means = fixed.groupby("method")[["density", "asked_density"]].mean()
    said = [
        f"{row.Index} sent {row.density:.2g} of the entries, not {row.asked_density:.2g}"
        for row in means[means.density > AS_ASKED * means.asked_density].itertuples()
    ]
    return "; ".join(said)


def arithmetic(rows: pd.DataFrame, columns: set[str]) -> str:
    """Bytes at fixed densities follow from the settings, whatever the runs do."""
    fixed = len(rows) and (rows.controller == FIXED).all()
    told = bool(columns) and columns <= OF_SETTINGS
    return "arithmetic: bytes at a fixed density are set, not found" if fixed and told else ""
