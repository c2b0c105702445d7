"""Python's language reference, which CPython ships for help() in pydoc_data.topics.

Real text that every machine has, prepared like the Penn Treebank: lower case, numbers as N, rare
words as <unk>, paragraph ends as <eos>. Its length depends on Python's version.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from harness.workloads.data.base import Shape
from harness.workloads.data.text import END, UNKNOWN, Windows, require_window

TEST_EVERY = 8  # of the topics by name, one is for testing
WORD = re.compile(r"[^\W\d]\w*|\d[\w.]*|([^\w\s])\1*")  # a run of one sign is one word


@dataclass(frozen=True)
class PydocText:
    """About 70,000 training and 7,000 test words in windows of `window`, split by topic."""

    name: str = "pydoc"
    window: int = 35  # words that gradients go back
    vocabulary: int = 1_000  # the most frequent words of the training topics, <unk> included
    metric: ClassVar[str] = "perplexity"

    def __post_init__(self) -> None:
        require_window(self.window)
        if not 2 <= self.vocabulary <= 2_500:
            raise ValueError(f"vocabulary must be in [2, 2500], got {self.vocabulary}")

    @property
    def shape(self) -> Shape:
        return (self.window,)

    @property
    def classes(self) -> int:
        return self.vocabulary

    def check(self) -> None:
        """Accept always: the text comes with Python."""

    def train(self) -> Windows:
        return self._splits()[0]

    def test(self) -> Windows:
        return self._splits()[1]

    def _splits(self) -> tuple[Windows, Windows]:
        from pydoc_data.topics import topics  # half a megabyte

        train, test = split(topics)
        known = [word for word, _ in Counter(train).most_common() if word != UNKNOWN]
        numbers = {
            word: number for number, word in enumerate([UNKNOWN, *known[: self.classes - 1]])
        }
        return (
            Windows(_numbered(train, numbers), self.window),
            Windows(_numbered(test, numbers), self.window),
        )


def split(topics: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return words of training and test topics. A repeated paragraph counts at its first place."""
    names = sorted(topics)
    tested = names[TEST_EVERY - 1 :: TEST_EVERY]
    seen: set[str] = set()
    train = [w for name in names if name not in tested for w in _words(topics[name], seen)]
    return train, [word for name in tested for word in _words(topics[name], seen)]


def _words(text: str, seen: set[str]) -> Iterator[str]:
    """Return the words of paragraphs of `text` that are not in `seen`, and add these to it."""
    for paragraph in text.lower().split("\n\n"):
        found = (match.group() for match in WORD.finditer(paragraph))
        words = ["N" if word[0].isdigit() else word for word in found]
        if words and (key := " ".join(words)) not in seen:
            seen.add(key)
            yield from (*words, END)


def _numbered(words: list[str], numbers: Mapping[str, int]) -> Tensor:
    return torch.tensor([numbers.get(word, numbers[UNKNOWN]) for word in words])
