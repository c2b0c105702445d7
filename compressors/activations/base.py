"""What crosses a cut, and what a compression of it has to say at either side."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Piece(NamedTuple):
    """One message across a cut, in one direction."""

    values: Tensor  # float32 [k], row by row
    mask: Tensor | None = None  # bool [rows, d] with k set, where the other side has to be told


class Activations(Protocol):
    """Compression at one cut; activations are rows, [rows, d] float32, one for each sample.

    The side before the cut calls `forward` and, when the gradient has come back, `returned`; the
    side after it calls `received` and then `backward`. `kept` is whatever a side has to remember
    of a micro-batch in between. One object may serve both sides, which is the operator of one
    process, or one side each, which is a link between two: the numbers are the same bit for bit.
    A class derives from this.
    """

    keeps_largest: bool = False  # it sends the largest of every sample, or all

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, Any]:
        """Choose the entries of `rows`, [rows, d], to send, and keep what `returned` will need."""
        ...

    def received(self, piece: Piece, shape: tuple[int, int], training: bool) -> tuple[Tensor, Any]:
        """The activations behind the cut, [rows, d], and what `backward` will need."""
        ...

    def backward(self, grad: Tensor, kept: Any) -> Piece:
        """Choose the entries to send back of the gradient behind the cut, [rows, d]."""
        ...

    def returned(self, piece: Piece, kept: Any, shape: tuple[int, int]) -> Tensor:
        """The gradient before the cut, [rows, d]."""
        ...

    def count(self, shape: tuple[int, int]) -> int | None:
        """Values of a forward piece for `shape` rows; None: its mask tells."""
        ...

    def count_back(self, kept: Any, shape: tuple[int, int]) -> int | None:
        """Values of a backward piece, as the side before the cut knows it; None: its mask tells."""
        ...
