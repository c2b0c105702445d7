"""BLEU (Papineni et al., 2002) of a model's translations, by sacrebleu (Post, 2018).

Its counts are sums over sentences, so workers add theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.workloads.models.transformer import END, PADDING, Translator

ORDERS = 4  # words in a row, at most
MORE = (
    10  # pieces, and twice as many as the longest sentence of the batch: no translation is longer
)


@dataclass(frozen=True)
class Bleu:
    """Judge of translations found by beam search, by their BLEU score."""

    pieces: Callable[[], Any]  # the model of sentencepiece
    tokenize: str = "13a"
    beam: int = 1
    size: int = 2 * ORDERS + 2

    def sums(self, model: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return matches and n-grams of every order, and words of translations and references."""
        from sacrebleu.metrics.bleu import BLEU

        assert isinstance(model, Translator)
        pieces = self.pieces()
        source = inputs[:, 0].long()
        longest = int((source != PADDING).sum(1).max())
        words = model.translated(source, MORE + 2 * longest, self.beam)
        said = [pieces.decode(_until_end(row)) for row in words.tolist()]
        wanted = [pieces.decode(_until_end(row)) for row in labels.tolist()]
        found = BLEU(tokenize=self.tokenize).corpus_score(said, [wanted])
        counts = [*found.counts, *found.totals, found.sys_len, found.ref_len]
        return torch.tensor(counts, dtype=torch.float64)

    def quality(self, sums: Tensor) -> float:
        """Return BLEU in [0, 100] from the sums of all sentences, smoothed as sacrebleu does."""
        from sacrebleu.metrics.bleu import BLEU

        counts = [int(each) for each in sums.tolist()]
        matches, totals, (said, wanted) = counts[:ORDERS], counts[ORDERS:-2], counts[-2:]
        return BLEU.compute_bleu(matches, totals, said, wanted, smooth_method="exp").score


def _until_end(row: list[int]) -> list[int]:
    return row[: row.index(END)] if END in row else [number for number in row if number >= 0]
