"""Interface of data sets: shape, presence of files, and samples."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from torch import Tensor

# Of one sample: channels, height, width of an image; words of a text; (39, 1) of a click;
# (2, words) of a sentence and its translation.
Shape = tuple[int, ...]
# One of: images or clicks [n, *shape] float32, and labels [n] int64; word numbers [n, words]
# int64, and the numbers of the words that follow; pairs of sentences [n, 2, words], as long as
# the longest, and the words of the second [n, words].
Batch = tuple[Tensor, Tensor]
UNLABELLED = -100  # label of a word behind the end of a text, as torch's cross_entropy has it
Plan = Iterable[tuple[Tensor, tuple[int, ...]]]  # per batch: indices [n], key of its randomness


MOST_SAMPLES = 100_000_000  # an epoch's order takes 8 bytes a sample
MOST_MADE = 10_000_000  # of samples that are computed before the first step


class Samples(Protocol):
    """One split of a data set. Its batches depend only on the plan."""

    @property
    def in_order(self) -> bool:
        """True if each sample continues the one before it, as pieces of a text do."""
        ...

    def __len__(self) -> int: ...

    def stream(self, plan: Plan) -> Iterator[Batch]:
        """Yield one batch per entry of `plan`, in order. The plan may be endless."""
        ...


class DataSet(Protocol):
    """Data set, as made by a choice of `conf/dataset`.

    It may also have `label_smoothing`, a `judge` of its metric (`harness.engine.training.task`),
    and `published`, the number of training samples that its authors state, or None. With
    `published` the batch size is checked without the files.
    """

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def classes(self) -> int: ...

    @property
    def metric(self) -> str:
        """Name of the metric beside the loss: `accuracy`, `perplexity` for text, or `bleu`."""
        ...

    def check(self) -> None:
        """Raise FileNotFoundError if files are missing; quick, as nothing is built before."""
        ...

    def train(self) -> Samples: ...

    def test(self) -> Samples: ...


def data_folder(folder: str | None) -> Path:
    """Return `folder`, or if null $GRADNET_DATA, or if unset ~/data."""
    return Path(folder or os.environ.get("GRADNET_DATA") or "~/data").expanduser()


def not_found(name: str, folder: Path, problem: str, layout: str) -> FileNotFoundError:
    """Return the error for missing data files, in the one form that all data sets use."""
    return FileNotFoundError(
        f"{name} not found in {folder}: {problem}. Expected {layout}. Nothing is downloaded: put "
        "it there, set GRADNET_DATA or dataset.folder to its folder, or use scale=laptop"
    )


def written(files: Iterable[Path]) -> tuple[int, ...]:
    """Return when each of `files` was last written, in nanoseconds, to detect changes."""
    return tuple(file.stat().st_mtime_ns for file in files)
