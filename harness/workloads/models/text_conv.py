"""A conv net for short texts (Kim, 2014), with one width of filters.

An embedding of each word, `filters` over three words, the maximum of each, and scores.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from harness.workloads.models.base import Shape, Times

WORDS = 3  # that a filter sees


@dataclass(frozen=True)
class TextConv:
    """Architecture with V w parameters for V words, 3 w f + f, and f + 1 a class."""

    name: str = "text_conv"
    vocabulary: int = 2_000  # numbers of words must be below
    width: int = 64  # of the embedding
    filters: int = 128
    times: Times | None = None

    def __post_init__(self) -> None:
        for key in ("vocabulary", "width", "filters"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 2 or shape[0] != 1:
            raise ValueError(
                f"{self.name} takes passages (1, words), got samples of {tuple(shape)}"
            )
        return nn.Sequential(
            Embedded(self.vocabulary, self.width),
            nn.Conv1d(self.width, self.filters, WORDS, padding=WORDS // 2),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(self.filters, classes),
        )


class Embedded(nn.Embedding):
    """Words [n, 1, words], of any number type, as columns [n, width, words]."""

    def forward(self, words: Tensor) -> Tensor:
        return super().forward(words[:, 0].long()).transpose(1, 2)
