"""Compute ACP-SGD's figure 5: sizes of gradient tensors and of their factors P and Q.

It reads layer lists, no runs: `python -m papers.acp_sgd.sizes FILE.svg` draws the figure.
"""

import sys
from pathlib import Path

from harness.fidelity.layers import tensors
from harness.reporting.figures.sizes import cumulative
from harness.reporting.figures.theme import svg

RANKS = {"ResNet-50": 4, "BERT-Base": 32}
SMALL = {"ResNet-50": 10_000, "BERT-Base": 100_000}  # elements; smaller tensors are small


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


if __name__ == "__main__":
    [file] = sys.argv[1:]
    Path(file).write_bytes(svg(cumulative({model: elements(model) for model in RANKS})))
