"""Word-level LSTM language models (Zaremba et al., 2014) with untied input and output layers."""

from dataclasses import dataclass

from torch import Tensor, nn

from harness.workloads.models.base import Shape, State, Times, check_layers

SPREAD = 0.1  # the decoder begins uniform in +- this, as in PyTorch's word_language_model


@dataclass(frozen=True)
class LSTM:
    """An embedding of `hidden`, `layers` LSTMs of `hidden` units, and a score for every word.

    Parameters: 2 V h + V for a vocabulary of V, and 8 h^2 + 8 h a layer.
    """

    name: str = "lstm"
    hidden: int = 1500
    layers: int = 2
    dropout: float = 0.65  # after the embedding and after every layer
    spread: float = SPREAD  # the embedding begins uniform in +- this
    times: Times | None = None

    def __post_init__(self) -> None:
        for key in ("hidden", "layers"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be >= 1, got {getattr(self, key)}")
        check_layers(layers=self.layers)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        if not self.spread > 0:
            raise ValueError(f"spread must be > 0, got {self.spread}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ValueError(f"{self.name} takes texts (words), got samples of {tuple(shape)}")
        network = WordModel(classes, self.hidden, self.layers, self.dropout)
        nn.init.uniform_(network.embedding.weight, -self.spread, self.spread)
        return network


class WordModel(nn.Module):
    """Network that returns scores of every next word, [n, words, vocabulary], and its state.

    If a batch has fewer rows than the previous one, the first rows of the state continue.
    """

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, dropout=between, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.decoder.weight, -SPREAD, SPREAD)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return scores and state for `words` [n, words] and `state` parts [layers, n, hidden]."""
        if state is not None:
            state = tuple(part[:, : len(words)].contiguous() for part in state)
        hidden, state = self.lstm(self.dropout(self.embedding(words.long())), state)
        return self.decoder(self.dropout(hidden)), state
