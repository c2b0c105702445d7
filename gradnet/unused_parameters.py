"""Restore the state of parameters that no rank used in a step.

With `find_unused_parameters=True` DDP does not change the gradient of such a parameter, so its mean
is never applied. A rank knows at once which parameters it did not use itself. DDP knows only after
backward which ones no rank used.
"""

from copy import deepcopy
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from harness.engine.exchange.feedback import Residual
from harness.engine.exchange.reduction import BucketBuffers, Reduction


class UnusedParameters:
    """Copy of the state of parameters that this rank did not use, made before each compression.

    The state is the residual, and every entry of the compressor's dictionaries by parameter name.
    """

    def __init__(self, model: DistributedDataParallel, reduction: Reduction) -> None:
        self._model, self._reduction = model, reduction
        self._names: list[str] = []  # in the order of DDP's reducer
        self._used: set[str] = set()  # by this rank since the last `restore`
        self._residuals: dict[str, Tensor] = {}
        self._entries: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        self._hooks = []
        for name, parameter in model.module.named_parameters():
            if parameter.requires_grad and name not in model.parameters_to_ignore:
                self._names.append(name)
                note = lambda _, name=name: self._used.add(name)  # noqa: E731
                self._hooks.append(parameter.register_post_accumulate_grad_hook(note))
        reduction.look = self._copy

    def _copy(self, step: int, bucket: BucketBuffers, residual: Tensor | None) -> None:
        sizes = [gradient.numel() for gradient in bucket.gradients]
        parts = [None] * len(sizes) if residual is None else residual.split(sizes)
        for name, part in zip(bucket.names, parts, strict=True):
            if name in self._used:
                continue
            if part is not None:
                self._residuals[name] = part.clone()
            states = vars(self._reduction.compressor).values()
            by_name = [state for state in states if isinstance(state, dict)]
            self._entries[name] = [(state, deepcopy(state.get(name))) for state in by_name]

    def restore(self) -> None:
        """Restore the state of parameters that no rank used. Call it when backward has ended."""
        counts = self._model.reducer._get_local_used_map().tolist()
        unused = {name for name, count in zip(self._names, counts, strict=True) if not count}
        feedback = self._reduction.feedback
        held = feedback.by_parameter() if isinstance(feedback, Residual) else {}
        for name in unused & set(self._entries):
            if name in self._residuals:
                held[name].copy_(self._residuals[name])
            for state, entry in self._entries[name]:
                if entry is not None:
                    state[name] = entry
                else:
                    state.pop(name, None)
        self._used.clear()
        self._residuals.clear()
        self._entries.clear()

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()
