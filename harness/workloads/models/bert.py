"""Text classifiers with an encoder (BERT: Devlin et al., 2019), sized for two cores.

A class token precedes the words, every word sees every other, and the first place's output is
pooled and scored. Unlike BERT's, sublayers are normalised before, as in GPT-2, so that many narrow
ones learn from the first step without warm-up. There is no pre-training, so no segment types.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.workloads.models.base import Shape, Times
from harness.workloads.models.gpt import SPREAD, TransformerBlock, begin_, require_blocks


@dataclass(frozen=True)
class BERT:
    """`layers` blocks, each `width` wide and four times that in its perceptron.

    Parameters: about 12 w^2 a block of width w, (V + 1) w + (L + 1) w for V words in texts of L,
    and w^2 + w and w + 1 a class.
    """

    name: str = "bert"
    vocabulary: int = 2_000  # numbers of words must be below
    width: int = 96
    layers: int = 3
    heads: int = 4
    dropout: float = 0.0
    spread: float = SPREAD  # deviation that weights begin with
    times: Times | None = None

    def __post_init__(self) -> None:
        if self.vocabulary < 1:
            raise ValueError(f"vocabulary must be >= 1, got {self.vocabulary}")
        require_blocks(self)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 2 or shape[0] != 1:
            raise ValueError(
                f"{self.name} takes passages (1, words), got samples of {tuple(shape)}"
            )
        return Classifier(self, shape[1], classes)


class Classifier(nn.Module):
    """Network from words [n, 1, words], of any number type, to scores [n, classes]."""

    def __init__(self, of: BERT, words: int, classes: int) -> None:
        super().__init__()
        self.token = of.vocabulary  # of the class: the number behind the last word
        self.embedding = nn.Embedding(of.vocabulary + 1, of.width)
        self.position = nn.Embedding(words + 1, of.width)
        self.dropout = nn.Dropout(of.dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(of.width, of.heads, of.dropout, causal=False) for _ in range(of.layers)
        )
        self.norm = nn.LayerNorm(of.width)
        self.pooler = nn.Linear(of.width, of.width)
        self.scores = nn.Linear(of.width, classes)
        begin_(self, of.layers, of.spread)

    def forward(self, words: Tensor) -> Tensor:
        numbers = nn.functional.pad(words[:, 0].long(), (1, 0), value=self.token)
        places = torch.arange(numbers.shape[1], device=words.device)
        x = self.dropout(self.embedding(numbers) + self.position(places))
        for block in self.blocks:
            x = block(x)
        return self.scores(torch.tanh(self.pooler(self.norm(x[:, 0]))))
