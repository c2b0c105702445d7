"""Which workloads can tell methods apart: dense reaches the target, and what should lose does.

Losses are shares of the dense run's quality, which is accuracy, or the inverse of perplexity or
cross-entropy, pair by pair. How much has to be lost is what papers publish of such methods.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pandas as pd

from harness.reporting.analysis import load
from harness.reporting.claims.base import Found, Group, PaperClaims, Runs, all_of, spoken
from harness.reporting.claims.base import above as is_above

RARE, FORGETFUL, SKETCH = "topk_0.001", "randomk_0.1_no_ef", "sketch_0.1"
# DC2, figure 4d: top-k of 0.001 ends at 82 % of VGG16's 96.8; of ResNet-20 a larger share is lost.
OF_GRADIENTS = 1 - 82 / 96.8
# DCT, table 7: a sketch of a tenth ends at a cross-entropy of 0.4721, without it at 0.4538. Nothing
# else is published of a cross-entropy, so this is asked of all methods where that is the metric.
OF_CROSS_ENTROPY = 1 - 0.4538 / 0.4721
LEAST = {"accuracy": OF_GRADIENTS, "perplexity": OF_GRADIENTS, "loss": OF_CROSS_ENTROPY}


class Workload(NamedTuple):
    """A choice of conf/workload by what its runs say of themselves."""

    model: str  # class of harness.workloads.models
    data: str  # class of harness.workloads.data
    is_cut: bool = True  # a chain of layers, with an experiment of its cuts


WORKLOADS = {
    "glyphs_convnet": Workload("convnet.ConvNet", "glyphs.Glyphs"),
    "glyphs_vgg": Workload("vgg_small.SmallVGG", "glyphs.Glyphs"),
    "passages": Workload("text_conv.TextConv", "passages.Passages"),
    "stdlib_lstm": Workload("lstm.LSTM", "stdlib_text.StdlibText", is_cut=False),
    "clicks_dlrm": Workload("dlrm.DLRM", "clicks.Clicks"),
}


class Control(NamedTuple):
    """A method that has to lose."""

    group: Group
    method: str
    least: float  # share of the dense quality


def of_gradients(workload: Workload) -> Callable[[Runs], Found]:
    """Rule that too little of a gradient, and none of the rest, lose."""

    def decide(runs: Runs) -> Found:
        group = _group(runs, "controls", workload)
        least = LEAST[group.rows(group.dense).metric.iloc[0]]
        return _decided(group, [Control(group, method, least) for method in (RARE, FORGETFUL)])

    return decide


def of_cuts(workload: Workload) -> Callable[[Runs], Found]:
    """Rule that a sketch at a cut loses."""

    def decide(runs: Runs) -> Found:
        cut = _group(runs, "controls_cut", workload)
        dense = _group(runs, "controls", workload)
        return _decided(dense, [Control(cut, SKETCH, OF_CROSS_ENTROPY)])

    return decide


def _group(runs: Runs, experiment: str, workload: Workload) -> Group:
    """Its runs in `experiment`; `NoSuchRuns` without."""
    model = {"model._target_": f"harness.workloads.models.{workload.model}"}
    data = {"dataset._target_": f"harness.workloads.data.{workload.data}"}
    return runs.of(experiment, **model, **data)


def _decided(dense: Group, controls: Iterable[Control]) -> Found:
    """Positive and negative controls together; the first must hold in every run."""
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
    """By pair of seeds; of a diverged run nothing is left."""
    indexed = rows.set_index(load.PAIR)
    return indexed.goal.mask(indexed.diverged, 0.0)


PAPER = PaperClaims("controls", workers=4)
for name, each in WORKLOADS.items():
    PAPER.says(name, "it tells methods of gradients apart", of_gradients(each), ours=True)
    if each.is_cut:
        PAPER.says(name, "it tells methods at cuts apart", of_cuts(each), ours=True)
