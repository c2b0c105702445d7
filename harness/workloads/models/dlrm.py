"""DLRM, the recommendation model of Naumov et al. (2019), as used by Gupta et al. (2021).

Initial weights are as in its authors' dlrm_s_pytorch.py: N(0, 2 / (m + n)) for a layer from n to m
units, N(0, 1 / m) for its biases, and uniform in +- 1 / sqrt(r) for embeddings of r rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn

from harness.workloads.models.base import Shape, Times
from harness.workloads.models.chain import Chain, SkipLayer

COUNTS, CATEGORIES = 13, 26  # columns of a click, as harness.workloads.data.columns has them
COLUMNS = COUNTS + CATEGORIES
# By number of stages, with two FC layers and their rectifiers in the first and the last one: the
# paper's one and two splits, all of 256 wide. It does not say where more were: ours, 512 and 256.
CUTS = {2: [5], 3: [5, 14], 4: [5, 12, 14], 5: [3, 5, 12, 14]}
BOTTOM, TOP = (512, 256, 64), (512, 256, 128)


@dataclass(frozen=True)
class DLRM:
    """A perceptron of the counts, an embedding per category, their products, and a perceptron.

    Eight fully-connected layers have 508,753 parameters, and the embeddings 26 x 16 x `rows`. For
    two classes there is one score, the logit of the second.
    """

    name: str = "dlrm"
    rows: int = 1_000  # of every embedding: categories of the data must be below
    width: int = 16  # of an embedding
    times: Times | None = None

    def __post_init__(self) -> None:
        for key in ("rows", "width"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if tuple(shape) != (COLUMNS, 1):
            raise ValueError(f"{self.name} takes clicks ({COLUMNS}, 1), got {tuple(shape)}")
        interaction = Interaction(self.rows, self.width)
        scores = 1 if classes == 2 else classes
        network = Chain(
            Counts(),
            *_perceptron([COUNTS, *BOTTOM, self.width]),
            nn.ReLU(),
            interaction,
            *_perceptron([interaction.units, *TOP, scores]),
        )
        network.preferred_cuts = CUTS
        return network


class Counts(nn.Module):
    """The columns of clicks [n, 39, 1] that are numbers, as [n, 13]."""

    def forward(self, clicks: Tensor) -> Tensor:
        return clicks[:, :COUNTS, 0]


class Interaction(SkipLayer):
    """Products of all pairs of vectors among the embeddings and the perceptron's output.

    Category c of column j is row j r + c of a single table, which is faster than 26 tables.
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CATEGORIES * rows, width)
        nn.init.uniform_(self.embedding.weight, -1 / sqrt(rows), 1 / sqrt(rows))
        vectors = 1 + CATEGORIES
        self.rows, self.units = rows, width + vectors * (vectors - 1) // 2

    def forward(self, x: Tensor, clicks: Tensor) -> Tensor:
        """Return [n, width + 351] for `x` [n, width] and `clicks` [n, 39, 1]."""
        first = self.rows * torch.arange(CATEGORIES, device=clicks.device)
        vectors = self.embedding(clicks[:, COUNTS:, 0].long() + first)
        vectors = torch.cat([x[:, None], vectors], dim=1)  # [n, 27, width]
        count = vectors.shape[1]
        one, other = torch.tril_indices(count, count, offset=-1, device=clicks.device)
        return torch.cat([x, (vectors @ vectors.transpose(1, 2))[:, one, other]], dim=1)


def _perceptron(units: Sequence[int]) -> Iterator[nn.Module]:
    """Yield linear layers from units[i] to units[i + 1], with rectifiers between them."""
    for number, (before, after) in enumerate(pairwise(units)):
        if number:
            yield nn.ReLU()
        layer = nn.Linear(before, after)
        nn.init.normal_(layer.weight, std=sqrt(2 / (before + after)))
        nn.init.normal_(layer.bias, std=sqrt(1 / after))
        yield layer
