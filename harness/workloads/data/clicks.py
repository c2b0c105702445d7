"""Generated clicks in Criteo's format, for machines without its file.

The counts are floor(exp(1.2 z + 1.5)) - 1 of 13 correlated normals z, one in twenty missing. 26
categories follow Zipf's law. Clicks are drawn from a teacher's logit: a perceptron of z, plus
effects of categories, of pairs of categories, and of categories with z. Little depends on pairs, so
a DLRM converges on 80,000 lines. Cross-entropies with seed 0:

| predictor | `interactions` 1 | 4 |
|---|---|---|
| click rate alone | 0.63 | |
| best sum over categories | 0.53 | 0.58 |
| best sum over columns | 0.42 | 0.44 |
| the teacher, who sees z | 0.41 | 0.35 |
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from harness.workloads.data.base import MOST_MADE, Shape
from harness.workloads.data.columns import CATEGORIES, COUNTS, DAYS, ClickTable, days, read
from harness.workloads.data.kept import alone, cache_folder, replacing
from profiles.limits import check_between

FORMAT = 3  # of the generated file; raise it when the content changes
CARDINALITIES = np.geomspace(4, 30, CATEGORIES).round().astype(int)
ZIPF = 1.05  # exponent of the categories' frequencies
MISSING = 0.05  # of the counts
UNITS, PAIRS, LATENT = 48, 24, 4  # of the teacher
OFFSET = -1.1  # of its logits
BLOCK = 8192  # lines made at once


@dataclass(frozen=True)
class Clicks:
    """`length` generated lines, determined by `seed`: six sevenths for training, then the test."""

    name: str = "clicks"
    length: int = 150_000
    rows: int = 81  # of an embedding, > CARDINALITIES; the more, the smaller embeddings begin
    seed: int = 0
    interactions: float = 1.0  # weight of what no sum over columns says
    cache: str | None = None
    classes: ClassVar[int] = 2
    shape: ClassVar[Shape] = (COUNTS + CATEGORIES, 1)
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        check_between(DAYS, MOST_MADE, length=self.length)
        check_between(2, 1 << 24, rows=self.rows)
        if not 0 <= self.interactions <= 10:
            raise ValueError(f"interactions must be in [0, 10], got {self.interactions}")

    def check(self) -> None:
        """Accept always: the data is generated here."""

    def train(self) -> ClickTable:
        return self._splits()[0]

    def test(self) -> ClickTable:
        return self._splits()[1]

    def _splits(self) -> tuple[ClickTable, ClickTable]:
        cache = cache_folder(self.cache)
        return days(read(self._text(cache), cache, self.rows))

    def _text(self, cache: Path) -> Path:
        apart = "" if self.interactions == 1 else f"-{self.interactions}"
        path = cache / f"clicks-{FORMAT}-{self.length}-{self.seed}{apart}.txt"
        with alone(path):
            if not path.exists():
                with replacing(path) as temporary, temporary.open("w") as text:
                    text.writelines(lines(self.length, self.seed, self.interactions))
        return path


@dataclass
class Teacher:
    """Random model, drawn from `source`, whose logits decide which samples are clicked."""

    source: np.random.Generator
    interactions: float = 1.0
    mixing: np.ndarray = field(init=False)  # [COUNTS, COUNTS], of independent normals into z

    def __post_init__(self) -> None:
        normal = self.source.normal
        mixing = np.eye(COUNTS) + 0.35 * normal(size=(COUNTS, COUNTS))
        self.mixing = mixing / np.linalg.norm(mixing, axis=0)
        self._hidden = normal(size=(COUNTS, UNITS)) / np.sqrt(COUNTS)
        self._out = normal(size=UNITS) / np.sqrt(UNITS)
        self._linear = normal(size=COUNTS) / np.sqrt(COUNTS)
        self._effects = [normal(size=n) / np.sqrt(CATEGORIES) for n in CARDINALITIES]
        self._latent = [normal(size=(n, LATENT)) / LATENT**0.25 for n in CARDINALITIES]
        columns = range(CATEGORIES)
        self._pairs = [self.source.choice(columns, 2, replace=False) for _ in range(PAIRS)]
        self._crossed = [(self.source.integers(COUNTS), c, normal(size=CARDINALITIES[c]))
                         for c in self.source.choice(columns, COUNTS, replace=False)]  # fmt: skip

    def logits(self, z: np.ndarray, categories: np.ndarray) -> np.ndarray:
        """Return logits [n] of `z` [n, 13] and `categories` [n, 26]."""
        columns = categories.T
        joint = np.tanh(1.5 * z @ self._hidden) @ self._out
        found = 1.7 * z @ self._linear
        found += 1.8 * sum(e[c] for e, c in zip(self._effects, columns, strict=True))
        latent = [table[c] for table, c in zip(self._latent, columns, strict=True)]
        products = sum((latent[a] * latent[b]).sum(1) for a, b in self._pairs)
        joint += 0.25 * products / np.sqrt(PAIRS)
        crossed = sum(z[:, j] * effect[columns[c]] for j, c, effect in self._crossed)
        joint += 0.2 * crossed / np.sqrt(COUNTS)
        return OFFSET + found + self.interactions * joint


def lines(length: int, seed: int, interactions: float = 1.0) -> Iterator[str]:
    """Yield `length` lines of generated clicks, with line ends; they only depend on the arguments.

    `interactions` scales the effects of pairs of categories on the clicks.
    """
    source = np.random.default_rng(seed)
    teacher = Teacher(source, interactions)
    numbers = source.integers(1 << 32, size=(CATEGORIES, max(CARDINALITIES)))
    names = np.array([[f"{number:08x}" for number in column] for column in numbers], dtype=object)
    shares = [1 / np.arange(1, n + 1) ** ZIPF for n in CARDINALITIES]
    for first in range(0, length, BLOCK):
        n = min(BLOCK, length - first)
        z = source.normal(size=(n, COUNTS)) @ teacher.mixing
        drawn = [source.choice(len(s), n, p=s / s.sum()) for s in shares]
        clicked = source.random(n) < 1 / (1 + np.exp(-teacher.logits(z, np.stack(drawn, axis=1))))
        counts = (np.floor(np.exp(1.2 * z + 1.5)) - 1).astype(int).astype(object)
        counts[source.random(counts.shape) < MISSING] = ""
        said = [names[column, each] for column, each in enumerate(drawn)]
        fields = np.column_stack([clicked.astype(int).astype(object), counts, *said])
        for line in fields.tolist():
            yield "\t".join(map(str, line)) + "\n"
