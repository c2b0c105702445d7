"""Text for language models: numbered words, read in windows that continue along batch rows."""

from collections.abc import Iterator

from torch import Tensor

from harness.workloads.data.base import Batch, Plan

END = "<eos>"  # of a line or paragraph
UNKNOWN = "<unk>"


class Windows:
    """One split: window i has words i L to (i + 1) L, labelled with the words one further on.

    `words` [n] are numbers, and L is `length`. The remainder is dropped.
    """

    in_order = True

    def __init__(self, words: Tensor, length: int) -> None:
        used = (len(words) - 1) // length * length
        self._inputs = words[:used].view(-1, length)
        self._labels = words[1 : used + 1].view(-1, length)

    def __len__(self) -> int:
        return len(self._inputs)

    def stream(self, plan: Plan) -> Iterator[Batch]:
        for indices, _ in plan:
            yield self._inputs[indices], self._labels[indices]


def require_window(length: int) -> None:
    if not (isinstance(length, int) and 1 <= length <= 10_000):
        raise ValueError(f"window must be in [1, 10000] words, got {length}")
