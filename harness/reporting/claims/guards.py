"""Checks that stop runs from deciding a claim they cannot test; used by `claims.base`.

A check reads rows of `metrics.table` and returns the reason why they decide nothing, or "".
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pandas as pd

from harness.reporting.analysis import load, statistics

LEAST_PAIRS = 3  # fewer do not show the scatter over seeds
# Gate of all papers: the share of the dense quality that every negative control must lose, by
# metric. Abdelmoniem and Canini (2021), figure 4d: with top-k 0.001 VGG16 ends at 82 %, dense at
# 96.8 %. Gupta et al. (2021), table 7: a sketch of a tenth ends at a cross-entropy of 0.4721, dense
# at 0.4538.
OF_GRADIENTS = 1 - 82 / 96.8
OF_CROSS_ENTROPY = 1 - 0.4538 / 0.4721
MUST_LOSE = {"accuracy": OF_GRADIENTS, "perplexity": OF_GRADIENTS, "loss": OF_CROSS_ENTROPY}
FIXED = "fixed"  # the controller that keeps the configured density
UNTRAINED = 0.05  # least decrease of the loss, relative to the first step's (chance level)
BY_QUALITY = {"final", "best", "time_to_target_s", "convergence_s", "speedup"}  # columns
OF_TIME = {"iteration_s", "time_s"}
AS_ASKED = 1.25  # tolerated factor over the requested density, which names the method
OF_SETTINGS = {"volume_ratio", "density"}  # columns that follow from a fixed density
CERTAIN = {  # conditions of runs without randomness
    "emulation.compute": "replay",
    "network.noise": 0.0,
    "network.exchange_noise": 0.0,
    "network.latency_noise": 0.0,
    "profile._target_": "profiles.static.Static",
}
CURVE = ["final", "best", "best_s", "loss_left"]
WHERE_AND_WHEN = ["overlap", "parallel"]  # these methods may do the same work at other times


class Regime(NamedTuple):
    """Conditions of the paper's runs that a claim depends on; None means any."""

    workers: int | None = None
    sends: float | None = None  # least sends per coordinate: steps times density
    ccr: tuple[float, float] | None = None  # range of communication over computation, dense
    steps: int | None = None  # at least

    def differs(self, rows: pd.DataFrame, dense: pd.DataFrame) -> str:
        """Return how `rows` differ from this regime, or "". `dense` has the uncompressed runs."""
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
    """Negative controls of one workload, required before its runs support "no loss" of quality."""

    model: str
    dataset: str
    experiment: str  # has these methods and dense, which must reach its target
    methods: tuple[str, ...]  # each must lose `MUST_LOSE` of the dense quality

    def insensitive(self, table: pd.DataFrame, read: Collection[str] = ()) -> str:
        """Return which controls fail in `table`, rows of one network and scale; "" if none.

        Methods in `read`, which the claim itself is about, are no controls of it.
        """
        rows = table[table.experiment == self.experiment]
        rows = rows[(rows.model == self.model) & (rows.dataset == self.dataset)]
        dense = rows[rows.dense.astype(bool)]
        if dense.empty:
            where = f"{self.experiment}, the controls of {self.model} on {self.dataset}"
            return f"testbed insensitive: no runs of {where}"
        failed = [] if dense.reached.all() else ["no compression does not reach the target"]
        others = [method for method in self.methods if method not in read]
        if not others:
            failed.append(f"{' and '.join(self.methods)} cannot control a claim on themselves")
        least = MUST_LOSE.get(dense.metric.iloc[0], 1.0)  # all, if no such loss is published
        for method in others:
            lost = self._lost(rows[rows.method == method], dense)
            if not lost >= least:
                failed.append(f"{method} loses {lost:.2g}, not {least:.2g}")
        return f"testbed insensitive: {'; '.join(failed)}" if failed else ""

    @staticmethod
    def _lost(rows: pd.DataFrame, dense: pd.DataFrame) -> float:
        """Return the lower 95 % limit of the dense quality's share lost; divergence loses all."""
        base = dense.set_index(load.PAIR).goal.reindex(pd.MultiIndex.from_frame(rows[load.PAIR]))
        kept = rows.goal.mask(rows.diverged, 0.0).to_numpy() / base.to_numpy()
        found = statistics.interval(pd.Series(1 - kept))
        return found.low


def insensitive(rows: pd.DataFrame, table: pd.DataFrame, controls: Sequence[Controls]) -> str:
    """Return failed or missing controls of the workloads of `rows`, or "". Replays need none."""
    known = {(each.model, each.dataset): each for each in controls}
    said = []
    trained = rows[rows.loss_left.notna()]
    for model, dataset in trained[["model", "dataset"]].drop_duplicates().itertuples(index=False):
        of_workload = known.get((model, dataset))
        lacks = f"testbed insensitive: {model} on {dataset} has no controls"
        read = {*trained[(trained.model == model) & (trained.dataset == dataset)].method}
        said.append(of_workload.insensitive(table, read) if of_workload else lacks)
    return "; ".join(filter(None, said))


def exact(rows: pd.DataFrame) -> bool:
    """Return True if no run is random: all are replays on a static network without noise."""
    return len(rows) > 0 and all(CERTAIN.items() <= told.items() for told in rows.conditions)


def too_few(rows: pd.DataFrame) -> str:
    """Return a reason if a method has under `LEAST_PAIRS` pairs of seeds and is not `exact`."""
    if exact(rows):
        return ""
    fewest = int(rows.groupby("method").size().min()) if len(rows) else 0
    if fewest >= LEAST_PAIRS:
        return ""
    return f"{fewest} pair{'s' * (fewest != 1)} of seeds, needs {LEAST_PAIRS}"


def missing(rows: pd.DataFrame, column: str, over: str, under: str) -> str:
    """Return a reason if a pair of seeds lacks `column` of a method: it could change the result."""
    known = rows[rows[column].notna()]
    pairs = [
        set(known[known.method == method][load.PAIR].itertuples(index=False, name=None))
        for method in (over, under)
    ]
    asked = set(rows[load.PAIR].itertuples(index=False, name=None))
    lost = len(asked) - len(pairs[0] & pairs[1])
    return f"{lost} of {len(asked)} pairs lack {column} of {over} or {under}" if lost else ""


def identical_work(rows: pd.DataFrame, over: str, under: str) -> str:
    """Return a reason if two methods trained alike: same bytes, curves, overlap and parallelism."""
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
    """Return a reason if the dense runs barely reduced their loss: no quality could be lost."""
    left = rows[rows.dense.astype(bool)].loss_left.mean()
    if not left > 1 - UNTRAINED:
        return ""
    return f"untrained: without compression {left:.3g} of the first loss are left"


def idle(rows: pd.DataFrame) -> str:
    """Return a reason if a method learnt nothing while dense did: its time buys nothing."""
    left = rows.groupby("method").loss_left.mean()
    far = left[left > 1 - UNTRAINED].items()
    said = [f"{method} leaves {value:.3g} of the first loss" for method, value in far]
    learnt = (rows[rows.dense.astype(bool)].loss_left <= 1 - UNTRAINED).any()
    return f"untrained: {', '.join(said)}, so that its time says nothing" if said and learnt else ""


def sent_more(rows: pd.DataFrame) -> str:
    """Return a reason if methods at a fixed density sent over AS_ASKED times as much.

    Threshold methods may. Sending less is accepted, because zeros are never sent.
    """
    fixed = rows[rows.controller == FIXED]
    means = fixed.groupby("method")[["density", "asked_density"]].mean()
    said = [
        f"{row.Index} sent {row.density:.2g} of the entries, not {row.asked_density:.2g}"
        for row in means[means.density > AS_ASKED * means.asked_density].itertuples()
    ]
    return "; ".join(said)


def arithmetic(rows: pd.DataFrame, columns: set[str]) -> str:
    """Return a reason if a claim only reads bytes at fixed densities, which settings decide."""
    fixed = len(rows) and (rows.controller == FIXED).all()
    told = bool(columns) and columns <= OF_SETTINGS
    return "arithmetic: bytes at a fixed density are set, not found" if fixed and told else ""
