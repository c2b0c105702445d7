"""ACP-SGD's figure 5: how large the tensors of a gradient are, and those of its factors P and Q.

From lists of layers, without any run: `python -m papers.acp_sgd.sizes FILE.svg` draws it.
"""

import sys
from pathlib import Path

from harness.fidelity.layers import tensors
from harness.reporting.figures.sizes import cumulative
from harness.reporting.figures.theme import svg

RANKS = {"ResNet-50": 4, "BERT-Base": 32}
SMALL = {"ResNet-50": 10_000, "BERT-Base": 100_000}  # elements, fewer than which are small


def elements(model: str) -> dict[str, list[int]]:
    """Elements of every tensor that is sent: of the gradient M, and of either factor of it."""
    known = tensors(model)
    found = {"M": [tensor.elements for tensor in known]}
    for side, factor in enumerate("PQ"):
        found[factor] = [tensor.factor(RANKS[model], side) for tensor in known]
    return found


def shares(model: str) -> dict[str, float]:
    """Share of the tensors that are small, in [0, 1]."""
    return {
        name: sum(size < SMALL[model] for size in found) / len(found)
        for name, found in elements(model).items()
    }


if __name__ == "__main__":
    [file] = sys.argv[1:]
    Path(file).write_bytes(svg(cumulative({model: elements(model) for model in RANKS})))
