"""Mixed precision in an attached model: the loss scale, and steps whose gradients overflow.

`torch.amp.GradScaler` multiplies the loss, and so every gradient, by a scale that changes from step
to step. It skips the optimizer step if a gradient overflows. `gradnet.attached` therefore divides
gradients by the scale before compression, so that residuals and momenta keep one unit. It undoes an
exchange in which any rank's gradient overflowed.
"""

from copy import deepcopy
from functools import wraps
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.futures import Future

from harness.engine.exchange.bucket_lanes import future_of
from harness.engine.exchange.reduction import Reduction

_watchers: list["LossScale"] = []
_scale_of_torch = GradScaler.scale


@wraps(_scale_of_torch)
def _scale(scaler: GradScaler, outputs: Any) -> Any:
    """Scale `outputs` as torch does, and record the scaler in every attached model."""
    if scaler.is_enabled():
        for watcher in _watchers:
            watcher.scaler = scaler
    return _scale_of_torch(scaler, outputs)


class LossScale:
    """Record of the GradScaler that scaled the loss of the current backward pass, if any.

    GradScaler has no hooks, so its `scale` method is wrapped while a `LossScale` is open. `scaler`
    is None if no enabled scaler was used since the last `take`.
    """

    def __init__(self) -> None:
        self.scaler: GradScaler | None = None
        self.was_used = False
        if not _watchers:
            GradScaler.scale = _scale  # type: ignore[method-assign, assignment]
        _watchers.append(self)

    def take(self) -> float:
        """Return the scale of this backward pass, or 1 if its loss is not scaled, and forget it.

        The loss of the next pass may be scaled by another scaler or by none.
        """
        scaler, self.scaler = self.scaler, None
        self.was_used = self.was_used or scaler is not None
        return 1.0 if scaler is None else scaler.get_scale()

    def close(self) -> None:
        """Stop recording. The last one to close restores GradScaler's own method."""
        _watchers.remove(self)
        if not _watchers and GradScaler.scale is _scale:
            GradScaler.scale = _scale_of_torch  # type: ignore[method-assign]


class ScaledExchange:
    """One exchange of scaled gradients, which is undone if any rank's gradient overflowed.

    DDP does not get the means before `settle`. Compressor and residuals are copied at the begin of
    the exchange and restored if it is undone.
    """

    def __init__(self, reduction: Reduction, scale: float, device: torch.device) -> None:
        self.reduction, self.scale = reduction, scale
        self._before = deepcopy((reduction.compressor, reduction.feedback))
        self._overflow = torch.zeros((), dtype=torch.bool, device=device)
        self._withheld: list[tuple[Tensor, Future]] = []

    def unscale(self, gradient: Tensor) -> None:
        """Divide a bucket's gradient, [n], by the scale in place. Zero it if it is not finite."""
        gradient.div_(self.scale)
        overflow = ~gradient.isfinite().all()
        self._overflow |= overflow
        gradient.masked_fill_(overflow, 0.0)

    def withhold(self, buffer: Tensor) -> Future:
        """Return a future that `settle` completes with `buffer`, [n], which will hold the mean."""
        future = future_of(buffer)
        self._withheld.append((buffer, future))
        return future

    @property
    def overflows(self) -> bool:
        """True if a gradient of this rank was not finite."""
        return bool(self._overflow)

    def settle(self, counts: bool) -> None:
        """Give the means to DDP, scaled again. Undo the exchange unless it `counts`.

        After an undone exchange DDP gets infinities, which GradScaler finds on every rank.
        """
        if not counts:
            self.reduction.compressor, self.reduction.feedback = self._before
        for buffer, future in self._withheld:
            buffer.mul_(self.scale) if counts else buffer.fill_(inf)
            future.set_result(buffer)
