"""Beam search: extend sentences word by word, and keep the best so far (as in fairseq).

`beam` prefixes of every sentence are followed and extended by every word. Among the best `beam`,
ended sentences are done, and the best `beam` unfinished ones continue. When as many are done, or at
the longest length, the sentence with the highest mean log-probability wins, its end included. A
beam of 1 takes the likeliest word each time.
"""

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

# Scores, [n, vocabulary], of the word behind each of `begun`, [n, words], of sentences `of`, [n].
Following = Callable[[Tensor, Tensor], Tensor]


def search(
    following: Following, sentences: int, longest: int, beam: int, begin: int, end: int
) -> Tensor:
    """Return the best words, [sentences, at most longest], on the CPU, padded with `end`."""
    begun = torch.full((sentences, beam, 1), begin)
    sums = torch.full((sentences, beam), -inf)  # of log-probabilities
    sums[:, 0] = 0  # all begin alike: only one of them counts
    found, quality = torch.full((sentences, longest), end), torch.full((sentences,), -inf)
    ended = torch.zeros(sentences, dtype=torch.int64)
    going = torch.arange(sentences)
    for length in range(1, longest + 2):
        if not len(going):
            break
        scores = following(begun.flatten(0, 1), going.repeat_interleave(beam)).cpu()
        likely = scores.float().log_softmax(-1)
        if length > longest:
            likely[:, torch.arange(likely.shape[1]) != end] = -inf
        extended = (sums.flatten()[:, None] + likely).view(len(going), -1)
        sums, places = extended.topk(2 * beam)  # at most half of them end
        parents, words = places // likely.shape[1], places % likely.shape[1]
        ends = (words == end) & (sums > -inf)

        means = sums[:, :beam].masked_fill(~ends[:, :beam], -inf) / length
        best, which = means.max(1)
        better = best > quality[going]
        rows = going[better]
        quality[rows], found[rows] = best[better], end
        found[rows, : length - 1] = begun[better, parents[better, which[better]], 1:]
        ended[going] += ends[:, :beam].sum(1)

        left = (ends * 2 * beam + torch.arange(2 * beam)).argsort(1)[:, :beam]
        still = ended[going] < beam
        sums, parents, words = (each.gather(1, left)[still] for each in (sums, parents, words))
        begun = begun[still].gather(1, parents[..., None].expand(-1, -1, length))
        begun, going = torch.cat([begun, words[..., None]], dim=2), going[still]
    used = int((found != end).any(0).sum())
    return found[:, : max(1, used + 1)]
