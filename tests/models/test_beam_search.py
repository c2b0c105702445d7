"""Beam search against the best of all sentences there are."""

from itertools import product
from math import inf

import pytest
import torch
from torch import Tensor

from harness.workloads.models.beam_search import search

BEGIN, END, VOCABULARY, LONGEST = 0, 1, 4, 3


def following(begun: Tensor, of: Tensor) -> Tensor:
    """Scores that depend on the sentence and on all words so far; BEGIN never comes again."""
    rows = []
    for words, number in zip(begun.tolist(), of.tolist(), strict=True):
        key = int("".join(map(str, [number, *words])))
        rows.append(2 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(key)))
    scores = torch.stack(rows)
    scores[:, BEGIN] = -inf
    return scores


def mean(number: int, words: tuple[int, ...]) -> float:
    """Mean log-probability of `words` and of the end behind them."""
    total, begun = 0.0, [BEGIN]
    for word in (*words, END):
        scores = following(torch.tensor([begun]), torch.tensor([number]))[0]
        total += float(scores.log_softmax(-1)[word])
        begun.append(word)
    return total / (len(words) + 1)


def found(beam: int, sentences: int = 20, longest: int = LONGEST) -> list[tuple[int, ...]]:
    rows = search(following, sentences, longest, beam, BEGIN, END).tolist()
    return [tuple(row[: row.index(END)] if END in row else row) for row in rows]


def test_a_beam_of_all_finds_the_best_there_is() -> None:
    every = [words for n in range(LONGEST + 1) for words in product((2, 3), repeat=n)]
    best = [max(every, key=lambda words: mean(number, words)) for number in range(20)]
    assert found(64) == best and len({len(words) for words in best}) > 2


def test_a_beam_of_one_is_greedy() -> None:
    for number, words in enumerate(found(1)):
        for place in range(len(words) + (len(words) < LONGEST)):
            begun = torch.tensor([[BEGIN, *words[:place]]])
            [scores] = following(begun, torch.tensor([number]))
            assert int(scores.argmax()) == (*words, END)[place]


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_no_sentence_is_longer_than_asked_nor_depends_on_the_others(beam: int) -> None:
    together = found(beam, longest=2)
    assert max(map(len, together)) <= 2
    alone = search(lambda begun, of: following(begun, of + 7), 1, 2, beam, BEGIN, END)[0].tolist()
    assert tuple(word for word in alone if word != END) == together[7]
