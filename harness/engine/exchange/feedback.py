"""Error feedback: what a worker did not send is added to its next gradient (Karimireddy, 2019)."""

from typing import Protocol

import torch
from torch import Tensor


class Feedback(Protocol):
    """Policy for the part of a gradient that compression left out."""

    def recall(self, names: tuple[str, ...], sizes: list[int], grad: Tensor) -> Tensor | None:
        """The residual e, [n], of the bucket of parameters `names` of `sizes` elements.

        Called once an exchange; `grad` is then added to it, in place. None: there is none.
        """
        ...

    def keep(self, names: tuple[str, ...], unsent: Tensor | None) -> None:
        """Remember what was left out of g + e; None: nothing."""
        ...


class NoFeedback:
    """No error feedback: the gradient is compressed as it is, the rest is lost."""

    def recall(self, names: tuple[str, ...], sizes: list[int], grad: Tensor) -> None:
        return None

    def keep(self, names: tuple[str, ...], unsent: Tensor | None) -> None:
        return None


class Residual:
    """e <- (g + decay e) - sent, in float32, per parameter.

    Held as one flat tensor per bucket. DDP changes its buckets after the first iteration, their
    count, members and the order inside; residuals are then carried over by parameter name.
    """

    def __init__(self, decay: float = 1.0) -> None:
        """`decay` in [0, 1]; 1 is plain error feedback, below it what has waited long fades."""
        if not 0 <= decay <= 1:
            raise ValueError(f"residual_decay must be in [0, 1], got {decay}")
        self._decay = decay
        self._buckets: dict[tuple[str, ...], Tensor] = {}
        self._sizes: dict[tuple[str, ...], list[int]] = {}

    def recall(self, names: tuple[str, ...], sizes: list[int], grad: Tensor) -> Tensor:
        residual = self._buckets.get(names)
        if residual is None:
            residual = self._carried_over(names, sizes, grad)
        return residual if self._decay == 1 else residual.mul_(self._decay)

    def keep(self, names: tuple[str, ...], unsent: Tensor | None) -> None:
        residual = self._buckets[names]
        if unsent is None:
            residual.zero_()
        elif unsent.data_ptr() != residual.data_ptr():
            residual.copy_(unsent)

    def by_parameter(self) -> dict[str, Tensor]:
        """Every parameter's residual, [its elements]; views of what is held."""
        return {
            name: part
            for names, flat in self._buckets.items()
            for name, part in zip(names, flat.split(self._sizes[names]), strict=True)
        }

    def _carried_over(self, names: tuple[str, ...], sizes: list[int], grad: Tensor) -> Tensor:
        known = self.by_parameter()
        flat = torch.zeros_like(grad)
        for name, part in zip(names, flat.split(sizes), strict=True):
            if name in known:
                part.copy_(known[name])
        self._forget(set(names))
        self._buckets[names], self._sizes[names] = flat, sizes
        return flat

    def _forget(self, names: set[str]) -> None:
        """Drop `names` from the buckets that held them; what else those held stays, by itself."""
        for old in [bucket for bucket in self._buckets if names & set(bucket)]:
            parts = self._buckets.pop(old).split(self._sizes.pop(old))
            for name, part in zip(old, parts, strict=True):
                if name not in names:
                    self._buckets[(name,)], self._sizes[(name,)] = part, [part.numel()]
