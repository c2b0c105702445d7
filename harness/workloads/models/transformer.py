"""Transformers that translate (Vaswani et al., 2017), as fairseq's transformer_iwslt_de_en.

Sublayers are normalised after, positions are sinusoidal, and the decoder's embeddings share a
matrix with its scores. Initial weights are fairseq's: embeddings N(0, 1 / width), and other
matrices uniform as in Glorot and Bengio (2010). Queries, keys and values share one matrix.
"""

from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor, nn

from harness.workloads.models import beam_search
from harness.workloads.models.base import Shape, Times, check_layers

PADDING, BEGIN, END = 0, 1, 2  # numbers of words, as harness.workloads.data.pairs has them
SLOWEST = 10_000.0  # wavelength of the slowest position over 2 pi


@dataclass(frozen=True)
class Transformer:
    """`layers` of an encoder and as many of a decoder, each `width` wide, `hidden` in between."""

    name: str = "transformer"
    width: int = 512
    layers: int = 6  # of the encoder, and of the decoder
    heads: int = 4
    hidden: int = 1024
    dropout: float = 0.3
    times: Times | None = None

    def __post_init__(self) -> None:
        for key in ("width", "layers", "heads", "hidden"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")
        check_layers(layers=self.layers)
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of 2 heads = {2 * self.heads}, "
                             f"got {self.width}")  # fmt: skip
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 2 or shape[0] != 2:
            raise ValueError(
                f"{self.name} takes pairs of sentences (2, words), got samples of {tuple(shape)}"
            )
        return Translator(self, classes)


class Rectifier(nn.Module):
    """max(0, x), as a place for a cut: its output, [n, words, hidden], can be replaced.

    It is no nn.ReLU, which torch's layers fuse in evaluation and so ignore a mask after it.
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class Translator(nn.Module):
    """Network that scores every next word of the second language."""

    def __init__(self, of: Transformer, vocabulary: int) -> None:
        super().__init__()
        self.scores = nn.Linear(of.width, vocabulary, bias=False)
        self.source = nn.Embedding(vocabulary, of.width)
        options = {"dropout": of.dropout, "batch_first": True}
        sizes = of.width, of.heads, of.hidden
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(*sizes, activation=Rectifier(), **options)  # type: ignore[arg-type]
            for _ in range(of.layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(*sizes, activation=Rectifier(), **options)  # type: ignore[arg-type]
            for _ in range(of.layers)
        )
        self.dropout = nn.Dropout(of.dropout)
        self._begin()

    def _begin(self) -> None:
        for name, parameter in self.named_parameters():
            if name in ("scores.weight", "source.weight"):
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, pairs: Tensor) -> Tensor:
        """Return [n, words, vocabulary] for `pairs` [n, 2, words]: source, and target from BEGIN.

        Words are numbers of any type, with PADDING behind the last one.
        """
        source, target = pairs.long().unbind(1)
        return self.decoded(target, *self.encoded(source))

    def encoded(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode `source`. Return [n, words, width] and the padding mask, bool [n, words]."""
        hidden = source == PADDING
        hidden[:, 0] = False  # or nothing would be left of a sentence without words
        x = self._placed(self.source(source))
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=hidden)
        return x, hidden

    def decoded(self, target: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        """Return scores of the word that follows each of `target`, [n, words]."""
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        x = self._placed(nn.functional.embedding(target, self.scores.weight))
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=later, tgt_is_causal=True,
                      memory_key_padding_mask=hidden)  # fmt: skip
        return self.scores(x)

    @torch.no_grad()
    def translated(self, source: Tensor, longest: int, beam: int) -> Tensor:
        """Translate `source` [n, words] to [n, <= `longest`] by beam search, padded with END."""
        memory, hidden = self.encoded(source)

        def following(begun: Tensor, of: Tensor) -> Tensor:
            begun, of = begun.to(source.device), of.to(source.device)
            return self.decoded(begun, memory[of], hidden[of])[:, -1]

        return beam_search.search(following, len(source), longest, beam, BEGIN, END)

    def _placed(self, embedded: Tensor) -> Tensor:
        """Return [n, words, width] with positions added."""
        _, length, width = embedded.shape
        return self.dropout(sqrt(width) * embedded + positions(length, width, embedded.device))

    def inner_cuts(self, stages: int) -> list[nn.Module]:
        """Return activation modules at which the paper cuts the model into `stages` parts.

        The cuts lie between the two matrices of layer 5 of 6 of the encoder, then also of the
        decoder, then also of layer 3 of both. Raises ValueError for other numbers of parts.
        """
        late, early = len(self.encoder) - 2, len(self.encoder) // 2 - 1
        known = {2: [(self.encoder, late)]}
        known[3] = [*known[2], (self.decoder, late)]
        known[5] = [*known[3], (self.encoder, early), (self.decoder, early)]
        if stages not in known or min(late, early) < 0 or (stages == 5 and late == early):
            raise ValueError(
                f"stages of a transformer of {len(self.encoder)} layers must be 2, 3 or, from 3 "
                f"layers on, 5, got {stages}"
            )
        return [layers[number].get_submodule("activation") for layers, number in known[stages]]


def positions(length: int, width: int, device: torch.device) -> Tensor:
    """Return sines and cosines of every position, [length, width]. `width` must be even."""
    rates = torch.exp(-log(SLOWEST) * torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
