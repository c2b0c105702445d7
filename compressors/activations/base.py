"""Interface of compression schemes for activations: methods for both sides of a cut."""

from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Piece(NamedTuple):
    """One message across a cut, in one direction."""

    values: Tensor  # float32 [k], row by row
    mask: Tensor | None = None  # bool [rows, d] with k set; None if the other side knows it


class Activations(Protocol):
    """Compression at one cut. Activations are float32 [rows, d], one row per sample.

    The side before the cut calls `forward`, and `returned` once the gradient is back. The side
    after it calls `received` and then `backward`. `kept` is the value that a side keeps of a
    micro-batch in between. One object may serve both sides, as an operator in one process, or two
    objects serve one side each, over a link. Both give the same bits. Schemes derive from it.
    """

    keeps_largest: bool = False  # True if it sends the largest entries of every sample, or all

    def forward(self, rows: Tensor, training: bool) -> tuple[Piece, Any]:
        """Return the piece of `rows`, [rows, d], to send, and the value that `returned` needs."""
        ...

    def received(self, piece: Piece, shape: tuple[int, int], training: bool) -> tuple[Tensor, Any]:
        """Return the activations after the cut, [rows, d], and the value that `backward` needs."""
        ...

    def backward(self, grad: Tensor, kept: Any) -> Piece:
        """Return the piece to send back of `grad`, the gradient after the cut, [rows, d]."""
        ...

    def returned(self, piece: Piece, kept: Any, shape: tuple[int, int]) -> Tensor:
        """Return the gradient before the cut, [rows, d]."""
        ...

    def count(self, shape: tuple[int, int]) -> int | None:
        """Return the count of values in a forward piece of `shape`, or None if its mask tells."""
        ...

    def count_back(self, kept: Any, shape: tuple[int, int]) -> int | None:
        """Return the number of values in a backward piece, or None if its mask gives it.

        The side before the cut calls this with `kept`, what it kept of the forward pass.
        """
        ...
