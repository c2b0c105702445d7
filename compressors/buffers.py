"""Memory of a bucket: the gradient, the residual that is added to it, and room for the mean.

Every pass over memory counts. So the addition happens in the first pass that an algorithm makes
over the sum anyway. That pass also zeroes the gradient if a mean of few entries is written there.
`compressors.fused` has these passes, and `grad` serves all other code.
"""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.kernels import require_alike
from compressors.sparse import add_


class Origin(NamedTuple):
    """Gradient, sum and check of a whole bucket, which its parts refer to."""

    gradient: Tensor
    total: Tensor
    examine: Callable[[Tensor], None] | None


class Buffers:
    """A gradient g and a residual e, [n]. Their sum is made once, in the memory of e.

    Without a residual the sum is the gradient itself. `out`, [n], receives the mean and may share
    the memory of the gradient. `examine` raises FloatingPointError for a vector, [n], that is not
    finite. Without it nothing checks. Raises ValueError unless residual and gradient are alike.
    """

    def __init__(
        self,
        gradient: Tensor,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        examine: Callable[[Tensor], None] | None = None,
    ) -> None:
        if residual is not None:
            require_alike(residual, gradient)
        self.total = gradient if residual is None else residual  # the sum, when it has been made
        self.addend = None if residual is None else gradient  # not yet added to the sum
        self.out = out
        self.needs_residual = out is None or out.data_ptr() != self.total.data_ptr()
        self.origin = Origin(gradient, self.total, examine)
        self.parts: list[Buffers] = []
        self._is_new = True  # no pass over it has begun
        self._can_zero_input = residual is not None and out is gradient
        self._is_zeroed = False

    @property
    def n(self) -> int:
        """Number of elements."""
        return self.total.numel()

    @property
    def device(self) -> torch.device:
        return self.total.device

    @property
    def grad(self) -> Tensor:
        """The sum of gradient and residual, [n]. Writing to it writes to the residual.

        The first access adds them. Raise FloatingPointError if the sum has NaN or inf.
        """
        for part in self.parts:
            part._add()
        if self._is_new:
            self.check_finite(self._add())
        return self.total

    def take_addend(self) -> Tensor | None:
        """Return the tensor that the caller must add to `total` in its pass; None if all is added.

        After the pass, before anything is sent, the caller must give `check_finite` a number that
        is finite only if the sum is.
        """
        for part in self.parts:
            part._add()
        addend, self.addend, self._is_new = self.addend, None, False
        return addend

    def take_zeroed_addend(self) -> tuple[Tensor | None, bool]:
        """Do the work of `take_addend`; also return True if the caller must zero the addend."""
        zeroes = self._can_zero_input and self.addend is not None
        self._is_zeroed = self._is_zeroed or zeroes
        return self.take_addend(), zeroes

    def check_finite(self, found: float) -> None:
        """Raise FloatingPointError if the gradient has NaN or inf.

        `found` is finite only if all elements are. If it is infinite for another reason, a closer
        look follows and no error is raised.
        """
        if not isfinite(found):
            self.examine()

    def examine(self) -> None:
        """Raise FloatingPointError if the gradient, or the sum so far, has NaN or inf."""
        gradient, total, examine = self.origin
        if examine is not None:
            examine(gradient)
            examine(total)

    def out_buffer(self) -> tuple[Tensor, bool]:
        """Return memory for the mean, [n], and whether it holds zeros (or undefined values).

        It may share the memory of the gradient, and of the sum if no residual is needed. Write to
        it only when neither is read any more.
        """
        is_zero = self._is_zeroed or (
            bool(self.parts) and all(part._is_zeroed for part in self.parts)
        )
        for each in (self, *self.parts):
            each._is_zeroed = False
        return self.total.new_empty(self.n) if self.out is None else self.out, is_zero

    def split(self, sizes: Sequence[int]) -> list["Buffers"]:
        """Return adjacent parts of `sizes`, each with an addition of its own."""
        addend = self.take_addend()
        addends = [None] * len(sizes) if addend is None else addend.split(list(sizes))
        self.parts = []
        for total, each in zip(self.total.split(list(sizes)), addends, strict=True):
            part = Buffers(total) if each is None else Buffers(each, total)
            part.origin, part.needs_residual = self.origin, self.needs_residual
            part._can_zero_input = self._can_zero_input
            self.parts.append(part)
        return self.parts

    def _add(self) -> float:
        """Make the sum if it is not made yet. Return a number that is finite only if the sum is."""
        addend, zeroes = self.take_zeroed_addend()
        if addend is not None:
            return add_(self.total, addend, zeroes)
        is_checked = self.total is self.origin.total and self.origin.examine is not None
        return float(self.total.sum()) if is_checked else 0.0
