"""Classify which module of Python's standard library twenty words of source come from.

A module's text is cut into passages, and runs of passages alternate between training and testing,
so no line of a test passage was trained on. Words are numbered by their frequency in training
passages. Names that only a few modules use share one number, as one would identify the module.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from harness.workloads.data.base import Shape
from harness.workloads.data.samples import InMemory
from harness.workloads.data.stdlib_text import library, modules

RUN = 40  # passages of a module in turn: the last of every TEST_EVERY runs is for testing
TEST_EVERY = 5
COMMON = 8  # modules at least that have a word with a number of its own
UNKNOWN = 0
WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")  # of a_name two; signs one by one


@dataclass(frozen=True)
class Passages:
    """Passages [1, words] of the `classes` longest modules, at most `most` of each.

    Python 3.11 has 24,304 for training and 5,174 for testing. Multinomial naive Bayes, which sees
    only word frequencies, classifies 48 % correctly.
    """

    name: str = "passages"
    classes: int = 64  # modules
    words: int = 20  # of a passage
    vocabulary: int = 2_000  # the most frequent words, the unknown included
    most: int = 600  # passages of one module
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        for key, least in (("classes", 2), ("words", 1), ("vocabulary", 2), ("most", RUN)):
            if getattr(self, key) < least:
                raise ValueError(f"{key} must be >= {least}, got {getattr(self, key)}")

    @property
    def shape(self) -> Shape:
        return 1, self.words

    def check(self) -> None:
        if len(modules()) < self.classes:
            raise FileNotFoundError(
                f"{self.name}: {self.classes} source files of the standard library needed in "
                f"{library()}, got {len(modules())}: install Python with them, or lower "
                "dataset.classes"
            )

    def train(self) -> InMemory:
        return self._splits()[0]

    def test(self) -> InMemory:
        return self._splits()[1]

    def _splits(self) -> tuple[InMemory, InMemory]:
        self.check()
        longest = sorted(modules(), key=lambda path: (-path.stat().st_size, path.name))
        texts = [self._passages(path) for path in sorted(longest[: self.classes])]
        parts = [_parted(text) for text in texts]
        numbers = _numbers([train for train, _ in parts], self.vocabulary)
        return tuple(self._samples([part[i] for part in parts], numbers) for i in (0, 1))  # type: ignore[return-value]

    def _passages(self, path: Path) -> list[list[str]]:
        """Cut a file into at most `most` passages of `words` words each."""
        found = WORD.findall(path.read_text(encoding="utf-8", errors="replace").lower())
        whole = len(found) // self.words * self.words
        cut = [found[at : at + self.words] for at in range(0, whole, self.words)]
        return cut[: self.most]

    def _samples(self, of_modules: list[list[list[str]]], numbers: dict[str, int]) -> InMemory:
        flat = [
            [numbers.get(word, UNKNOWN) for word in passage]
            for passages in of_modules
            for passage in passages
        ]
        counts = torch.tensor([len(passages) for passages in of_modules])
        labels = torch.arange(len(of_modules)).repeat_interleave(counts)
        return InMemory(torch.tensor(flat, dtype=torch.float32)[:, None], labels)


def _parted(passages: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Split passages into training and test runs, beginning with training."""
    tested = [at // RUN % TEST_EVERY == TEST_EVERY - 1 for at in range(len(passages))]
    both = list(zip(passages, tested, strict=True))
    return [each for each, test in both if not test], [each for each, test in both if test]


def _numbers(of_modules: Sequence[list[list[str]]], vocabulary: int) -> dict[str, int]:
    """Number the commonest words of >= COMMON (or all) modules, from 1 on, below `vocabulary`."""
    counts: Counter[str] = Counter()
    spread: Counter[str] = Counter()
    for passages in of_modules:
        words = [word for passage in passages for word in passage]
        counts.update(words)
        spread.update(set(words))
    least = min(COMMON, len(of_modules))
    common = sorted((w for w in counts if spread[w] >= least), key=lambda w: (-counts[w], w))
    return {word: number for number, word in enumerate(common[: vocabulary - 1], start=1)}
