"""Compute ACP-SGD's figure 5: sizes of gradient tensors and of their factors P and Q.

It reads layer lists, no runs: `python -m papers.acp_sgd.sizes FILE.svg` draws the figure.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from harness.fidelity.layers import tensors
from harness.reporting.figures.theme import LOOK, sheet, svg

RANKS = {"ResNet-50": 4, "BERT-Base": 32}
SMALL = {"ResNet-50": 10_000, "BERT-Base": 100_000}  # elements; smaller tensors are small
HEIGHT_IN = 3.2
LINES = ("-", "--", ":")


def elements(model: str) -> dict[str, list[int]]:
    """Return the elements of every tensor sent: of gradient "M" and of its factors "P" and "Q"."""
    known = tensors(model)
    found = {"M": [tensor.elements for tensor in known]}
    for side, factor in enumerate("PQ"):
        found[factor] = [tensor.factor(RANKS[model], side) for tensor in known]
    return found


def shares(model: str) -> dict[str, float]:
    """Return the share of tensors smaller than `SMALL`, in [0, 1], for M, P and Q."""
    return {
        name: sum(size < SMALL[model] for size in found) / len(found)
        for name, found in elements(model).items()
    }


@mpl.rc_context(LOOK)
def cumulative(models: Mapping[str, Mapping[str, Sequence[int]]]) -> Figure:
    """Plot cumulative shares of tensor sizes: a panel per model, a line per kind of tensor."""
    figure = sheet("share of tensors with at most so many elements", HEIGHT_IN)
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, (model, kinds) in zip(panels, models.items(), strict=True):
        for line, (name, elements) in zip(LINES, kinds.items(), strict=False):
            axes.ecdf(elements, label=name, linestyle=line)
        axes.set(xscale="log", xlabel="elements", title=model)
    panels[0].set(ylabel="share of tensors")
    panels[0].legend()
    return figure


if __name__ == "__main__":
    [file] = sys.argv[1:]
    Path(file).write_bytes(svg(cumulative({model: elements(model) for model in RANKS})))
