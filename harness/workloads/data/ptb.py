"""The Penn Treebank text of Mikolov et al. (2010): ptb.train.txt and ptb.test.txt.

A line is a sentence of words separated by spaces, in a vocabulary of 10,000. Rarer words are
already <unk> and numbers N. The end of a line is one more word, <eos>. The validation text is not
used, since published figures are test perplexities.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import torch

from harness.workloads.data.base import Shape, data_folder, not_found, written
from harness.workloads.data.text import END, Windows, require_window

FILES = ("ptb.train.txt", "ptb.test.txt")
LAYOUT = "ptb/ with ptb.train.txt and ptb.test.txt, as in simple-examples/data of Mikolov's archive"


@dataclass(frozen=True)
class PTB:
    """929,589 training and 82,430 test words, <eos> included, in windows of `window`."""

    name: str = "ptb"
    folder: str | None = None
    window: int = 35  # words that gradients go back
    vocabulary: int = 10_000  # different words of ptb.train.txt, <eos> included
    metric: ClassVar[str] = "perplexity"

    def __post_init__(self) -> None:
        require_window(self.window)
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary must be >= 2, got {self.vocabulary}")

    @property
    def published(self) -> int:
        """Number of windows: each word but the last has a successor to predict."""
        return (929_589 - 1) // self.window

    @property
    def shape(self) -> Shape:
        return (self.window,)

    @property
    def classes(self) -> int:
        return self.vocabulary

    def check(self) -> None:
        for file in FILES:
            if not self._path(file).is_file():
                raise not_found(self.name, data_folder(self.folder), f"no ptb/{file}", LAYOUT)

    def check_content(self) -> None:
        """Raise ValueError with file and line unless both texts stay within the vocabulary."""
        self.check()
        _check_texts(self, written(map(self._path, FILES)))

    def train(self) -> Windows:
        return self._split(FILES[0])

    def test(self) -> Windows:
        return self._split(FILES[1])

    def _split(self, file: str) -> Windows:
        self.check()
        numbers = self._numbers()
        found = []
        for where, line in lines(self._path(file)):
            for word in line:
                if word not in numbers:
                    raise ValueError(f"{where}: {word!r} must be a word of {FILES[0]}, and is not")
                found.append(numbers[word])
        return Windows(torch.tensor(found), self.window)

    def _numbers(self) -> dict[str, int]:
        """Number the text's words in order of appearance; ValueError unless `vocabulary` differ."""
        path, numbers = self._path(FILES[0]), dict[str, int]()
        for where, line in lines(path):
            for word in line:
                numbers.setdefault(word, len(numbers))
                if len(numbers) > self.vocabulary:
                    raise ValueError(
                        f"{where}: {word!r} is different word number {len(numbers)}, and there "
                        f"must be {self.vocabulary} (dataset.vocabulary)"
                    )
        if len(numbers) < self.vocabulary:
            raise ValueError(
                f"{path}: must have {self.vocabulary} different words (dataset.vocabulary), got "
                f"{len(numbers)}"
            )
        return numbers

    def _path(self, file: str) -> Path:
        return data_folder(self.folder) / "ptb" / file


@cache
def _check_texts(data: PTB, at: tuple[int, ...]) -> None:
    """Check the content once for texts that were written `at` these times."""
    data.train()
    data.test()


def lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each line's place `file:line` and words with <eos>; ValueError names the place."""
    for number, raw in enumerate(path.read_bytes().splitlines(), start=1):
        where = f"{path}:{number}"
        try:
            words = raw.decode().split()
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: must be UTF-8 text: {error}") from error
        if not words or END in words:
            problem = f"has {END} already" if words else "is empty"
            raise ValueError(f"{where}: must be a sentence of words without {END}, and {problem}")
        yield where, [*words, END]
