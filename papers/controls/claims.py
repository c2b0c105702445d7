"""Decide which workloads are sensitive enough to tell methods apart.

A workload passes if all dense runs reach the target and every negative control loses enough
quality. Quality is accuracy, or the inverse of perplexity or cross-entropy. A loss is a share of
the dense run's quality, pair by pair; `guards.MUST_LOSE` says how much is enough.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pandas as pd

from harness.reporting.analysis import load
from harness.reporting.claims.base import Found, Group, PaperClaims, Runs, all_of, spoken
from harness.reporting.claims.base import above as is_above
from harness.reporting.claims.guards import MUST_LOSE, OF_CROSS_ENTROPY

RARE, FORGETFUL, SKETCH = "topk_0.001", "randomk_0.1_no_ef", "sketch_0.1"


class Workload(NamedTuple):
    """A choice of conf/workload, identified by the classes of its model and data."""

    model: str  # class of harness.workloads.models
    data: str  # class of harness.workloads.data
    is_cut: bool = True  # a chain of layers, so there are runs with cuts


WORKLOADS = {
    "glyphs_convnet": Workload("convnet.ConvNet", "glyphs.Glyphs"),
    "glyphs_vgg": Workload("vgg_small.SmallVGG", "glyphs.Glyphs"),
    "passages": Workload("text_conv.TextConv", "passages.Passages"),
    "stdlib_lstm": Workload("lstm.LSTM", "stdlib_text.StdlibText", is_cut=False),
    "clicks_dlrm": Workload("dlrm.DLRM", "clicks.Clicks"),
}


class Control(NamedTuple):
    """A negative control: a method that must lose at least `least` of the dense quality."""

    group: Group
    method: str
    least: float  # share of the dense quality


def of_gradients(workload: Workload) -> Callable[[Runs], Found]:
    """Return the rule that dense reaches its target and both gradient controls lose enough."""

    def decide(runs: Runs) -> Found:
        group = _group(runs, "controls", workload)
        least = MUST_LOSE[group.rows(group.dense).metric.iloc[0]]
        return _decided(group, [Control(group, method, least) for method in (RARE, FORGETFUL)])

    return decide


def of_cuts(workload: Workload) -> Callable[[Runs], Found]:
    """Return the rule that dense reaches its target and a sketch at cuts loses enough."""

    def decide(runs: Runs) -> Found:
        cut = _group(runs, "controls_cut", workload)
        dense = _group(runs, "controls", workload)
        return _decided(dense, [Control(cut, SKETCH, OF_CROSS_ENTROPY)])

    return decide


def _group(runs: Runs, experiment: str, workload: Workload) -> Group:
    """Return the runs of `workload` in `experiment`; raise `NoSuchRuns` if there are none."""
    model = {"model._target_": f"harness.workloads.models.{workload.model}"}
    data = {"dataset._target_": f"harness.workloads.data.{workload.data}"}
    return runs.of(experiment, **model, **data)


def _decided(dense: Group, controls: Iterable[Control]) -> Found:
    """Decide whether all dense runs reach their target and every control loses enough quality."""
    dense.seen.columns.add("final")
    rows = dense.rows(dense.dense)
    reached, metric = int(rows.reached.sum()), rows.metric.iloc[0]
    verdicts: list[bool | None] = [reached == len(rows)]
    told = [f"{metric}: {dense.dense} {rows.final.mean():.3g}, target {rows.target.iloc[0]:g}"]
    failed = [] if all(verdicts) else [f"{reached} of {len(rows)} dense runs reach the target"]
    for control in controls:
        losing = control.group.rows(control.method)
        lost = Group.spread((1 - _quality(losing) / _quality(rows)).dropna())
        verdicts.append(is_above(lost, control.least))
        told.append(f"{control.method} {losing.final.mean():.3g}, loses {spoken(lost)}")
        if verdicts[-1] is not True:
            failed.append(f"{control.method} loses {spoken(lost)}, not {control.least:.3g}")
    return Found(all_of(verdicts), "; ".join(told), f"testbed insensitive: {'; '.join(failed)}")


def _quality(rows: pd.DataFrame) -> pd.Series:
    """Return the quality of each run by pair of seeds; a diverged run has 0."""
    indexed = rows.set_index(load.PAIR)
    return indexed.goal.mask(indexed.diverged, 0.0)


PAPER = PaperClaims("controls", workers=4)
for name, each in WORKLOADS.items():
    PAPER.says(name, "it tells methods of gradients apart", of_gradients(each), ours=True)
    if each.is_cut:
        PAPER.says(name, "it tells methods at cuts apart", of_cuts(each), ours=True)
