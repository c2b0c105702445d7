"""Decoders that foretell text (GPT-2: Radford et al., 2019), of sizes for two cores.

Normalised before every sublayer, learnt positions, attention to what came before alone. Weights
begin N(0, 0.02), those that end a sublayer divided by the root of how many there are, as GPT-2's.
Embedding and scores have a matrix each, as the harness's recurrent models have.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from harness.workloads.models.base import Shape, Times

SPREAD = 0.02  # deviation that weights begin with


@dataclass(frozen=True)
class GPT:
    """`layers` blocks, each `width` wide and four times that in its perceptron.

    Parameters: about 12 w^2 a block of width w, and 2 V w + L w of V words in windows of L.
    """

    name: str = "gpt"
    width: int = 96
    layers: int = 3
    heads: int = 4
    dropout: float = 0.0
    times: Times | None = None

    def __post_init__(self) -> None:
        for key in ("width", "layers", "heads"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads = {self.heads}, got {self.width}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ValueError(f"{self.name} takes texts (words), got samples of {tuple(shape)}")
        return Foreteller(self, shape[0], classes)


class Foreteller(nn.Module):
    """Scores of every next word, [n, words, vocabulary], of words [n, words]."""

    def __init__(self, of: GPT, window: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, of.width)
        self.position = nn.Embedding(window, of.width)
        self.dropout = nn.Dropout(of.dropout)
        self.blocks = nn.ModuleList(Decoder(of) for _ in range(of.layers))
        self.norm = nn.LayerNorm(of.width)
        self.scores = nn.Linear(of.width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                ends = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=SPREAD / sqrt(2 * of.layers) if ends else SPREAD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, words: Tensor) -> Tensor:
        """`words` are numbers of any type, as many as a window has or fewer."""
        places = torch.arange(words.shape[1], device=words.device)
        x = self.dropout(self.embedding(words.long()) + self.position(places))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


class Decoder(nn.Module):
    """Attention to the words up to each, and a perceptron, each added to what goes in."""

    def __init__(self, of: GPT) -> None:
        super().__init__()
        self.heads = of.heads
        self.before_attention = nn.LayerNorm(of.width)
        self.queries_keys_values = nn.Linear(of.width, 3 * of.width)
        self.out = nn.Linear(of.width, of.width)
        self.before_perceptron = nn.LayerNorm(of.width)
        self.up = nn.Linear(of.width, 4 * of.width)
        self.down = nn.Linear(4 * of.width, of.width)
        self.dropout = nn.Dropout(of.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.out(self._attended(self.before_attention(x))))
        units = nn.functional.gelu(self.up(self.before_perceptron(x)))
        return x + self.dropout(self.down(units))

    def _attended(self, x: Tensor) -> Tensor:
        """[n, words, width] of likewise."""
        n, words, width = x.shape
        parts = self.queries_keys_values(x).view(n, words, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return found.transpose(1, 2).reshape(n, words, width)
