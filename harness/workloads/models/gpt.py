"""Text decoders (GPT-2: Radford et al., 2019), sized for two cores.

Sublayers are normalised before, positions are learnt, and attention is causal. Initial weights are
N(0, 0.02) or a given spread, and those that end a sublayer are divided by the root of the number of
sublayers, as in GPT-2. Embedding and scores have separate matrices, as in the harness's recurrent
models, or share one, as in GPT-2.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from harness.workloads.models.base import Shape, Times, check_layers, multiply_adds

SPREAD = 0.02  # of GPT-2's weights at first, of width 768


@dataclass(frozen=True)
class GPT:
    """`layers` blocks, each `width` wide and four times that in its perceptron.

    Parameters: about 12 w^2 a block of width w, and 2 V w + L w for V words in windows of L. Tied
    embedding and scores save V w.
    """

    name: str = "gpt"
    width: int = 96
    layers: int = 3
    heads: int = 4
    dropout: float = 0.0
    tied: bool = False  # embedding and scores are one matrix
    spread: float = SPREAD  # deviation that weights begin with
    times: Times | None = None

    def __post_init__(self) -> None:
        require_blocks(self)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ValueError(f"{self.name} takes texts (words), got samples of {tuple(shape)}")
        network = Foreteller(self, shape[0], classes)
        if self.tied:
            counts = multiply_adds(network, shape)
            counts["norm.bias"] += shape[0] * self.width * classes  # scores, where backward begins
            total = sum(counts.values())
            object.__setattr__(network, "shares", {name: n / total for name, n in counts.items()})
        return network


class Blocks(Protocol):
    """Fields of a model made of blocks."""

    @property
    def width(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def dropout(self) -> float: ...

    @property
    def spread(self) -> float: ...


def require_blocks(of: Blocks) -> None:
    """Raise ValueError unless the fields describe valid blocks."""
    for key in ("width", "layers", "heads"):
        if getattr(of, key) < 1:
            raise ValueError(f"{key} must be >= 1, got {getattr(of, key)}")
    check_layers(layers=of.layers)
    if of.width % of.heads:
        raise ValueError(f"width must be a multiple of heads = {of.heads}, got {of.width}")
    if not 0 <= of.dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {of.dropout}")
    if not of.spread > 0:
        raise ValueError(f"spread must be > 0, got {of.spread}")


class Foreteller(nn.Module):
    """Network from words [n, words] to scores of every next word, [n, words, vocabulary]."""

    def __init__(self, of: GPT, window: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, of.width)
        self.position = nn.Embedding(window, of.width)
        self.dropout = nn.Dropout(of.dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(of.width, of.heads, of.dropout, causal=True) for _ in range(of.layers)
        )
        self.norm = nn.LayerNorm(of.width)
        self.scores = None if of.tied else nn.Linear(of.width, vocabulary, bias=False)
        begin_(self, of.layers, of.spread)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores. `words` are numbers of any type, at most as many as a window has."""
        places = torch.arange(words.shape[1], device=words.device)
        x = self.dropout(self.embedding(words.long()) + self.position(places))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return linear(x, self.embedding.weight) if self.scores is None else self.scores(x)


def begin_(network: nn.Module, layers: int, spread: float) -> None:
    """Initialise a network of `layers` blocks as GPT-2 does, with deviation `spread`."""
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            ends = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(parameter, std=spread / sqrt(2 * layers) if ends else spread)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class TransformerBlock(nn.Module):
    """Attention and a perceptron, each added to its input; causal words see earlier ones only."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.before_perceptron = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.out(self._attended(self.before_attention(x))))
        units = nn.functional.gelu(self.up(self.before_perceptron(x)))
        return x + self.dropout(self.down(units))

    def _attended(self, x: Tensor) -> Tensor:
        """Return attention's output, [n, words, width], for an input of the same shape."""
        n, words, width = x.shape
        parts = self.queries_keys_values(x).view(n, words, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        return found.transpose(1, 2).reshape(n, words, width)
