"""Error feedback: add the unsent part of a gradient to the next one (Karimireddy et al., 2019)."""

from typing import Protocol

import torch
from torch import Tensor


class Feedback(Protocol):
    """Policy for the part of a gradient that compression did not send."""

    def recall(self, names: tuple[str, ...], sizes: list[int], grad: Tensor) -> Tensor | None:
        """Return the residual e, [n], of the bucket with parameters `names` of `sizes` elements.

        Return None without error feedback. Called once per exchange. The caller then adds `grad` to
        the residual in place.
        """
        ...

    def keep(self, names: tuple[str, ...], unsent: Tensor | None) -> None:
        """Store `unsent`, the part of g + e that was not sent. None means that all was sent."""
        ...


class NoFeedback:
    """No error feedback: unsent parts are dropped."""

    def recall(self, names: tuple[str, ...], sizes: list[int], grad: Tensor) -> None:
        return None

    def keep(self, names: tuple[str, ...], unsent: Tensor | None) -> None:
        return None


class Residual:
    """Error feedback e <- (g + decay e) - sent, in float32, per parameter.

    Residuals are held as one flat tensor per bucket. DDP rebuilds its buckets after the first
    iteration in number, members and order, so residuals are carried over by parameter name.
    """

    def __init__(self, decay: float = 1.0) -> None:
        """Start empty. `decay` is in [0, 1]: 1 is plain error feedback, less fades old parts."""
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
        """Return every parameter's residual, 1-D, as a view of the stored memory."""
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
        """Drop the residuals of `names`. Other parameters of their buckets keep theirs."""
        for old in [bucket for bucket in self._buckets if names & set(bucket)]:
            parts = self._buckets.pop(old).split(self._sizes.pop(old))
            for name, part in zip(old, parts, strict=True):
                if name not in names:
                    self._buckets[(name,)], self._sizes[(name,)] = part, [part.numel()]
