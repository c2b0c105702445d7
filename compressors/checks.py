"""Checks of what a part returned against its interface, before compiled code reads it.

A part may come from outside this repository. Each check compares attributes of a tensor and makes
no pass over its memory. The exchange of gradients, the parameter server and the cuts of a model
call these functions right after they call a part.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NoReturn

import torch
from torch import Tensor

from compressors.base import Compressor, Reduced


class BadPart(TypeError):
    """Error of a part that broke its interface. The message is one line and names the class."""


def name_of(part: object) -> str:
    """Return the dotted path of the part's class."""
    kind = type(part)
    return f"{kind.__module__}.{kind.__qualname__}"


def described(value: object) -> str:
    """Describe a returned value in a few words: a tensor by type, shape and device."""
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        more = "" if value.layout is torch.strided else f", {value.layout}"
        if not more and not value.is_contiguous():
            more = ", not contiguous"
        needs = ", with requires_grad" if value.requires_grad else ""
        return f"{kind} {list(value.shape)} on {value.device}{more}{needs}"
    if value is None or isinstance(value, str | int | float):
        return repr(value)[:60]
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {name_of(value).removeprefix('builtins.')}"


def refuse(part: object, what: str, wanted: str, value: object) -> NoReturn:
    """Raise BadPart: `what` of `part` must be `wanted`, and `value` is something else."""
    raise BadPart(f"{name_of(part)}.{what} must be {wanted}, got {described(value)}")


def check_tensor(
    part: object,
    what: str,
    value: Any,
    shape: Sequence[int | None],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Raise BadPart unless `value` is contiguous, of this type, device and shape (None: any)."""
    if not (
        isinstance(value, Tensor)
        and value.dtype is dtype
        and value.layout is torch.strided
        and value.dim() == len(shape)
        and all(wanted in (None, got) for got, wanted in zip(value.shape, shape, strict=True))
        and value.device == device
        and value.is_contiguous()
    ):
        kind = str(dtype).removeprefix("torch.")
        lengths = ", ".join("k" if length is None else str(length) for length in shape)
        refuse(part, what, f"a contiguous {kind} tensor [{lengths}] on {device}", value)


def check_reduced(compressor: Compressor, reduced: Any, n: int, device: torch.device) -> None:
    """Raise BadPart unless `reduced` is a complete `Reduced` for a bucket of `n` elements."""
    if not isinstance(reduced, Reduced):
        refuse(compressor, "reduce()", "a compressors.base.Reduced(mean, unsent)", reduced)
    for name in ("mean", "unsent"):
        tensor = getattr(reduced, name)
        if tensor is None and name == "unsent":
            continue
        check_tensor(compressor, f"reduce().{name}", tensor, (n,), device)
        if tensor.requires_grad:  # the graph of every step would be kept
            refuse(compressor, f"reduce().{name}", "detached from its graph", tensor)
    for what in ("sent_entries", "sent_of"):
        count = getattr(compressor, what, None)
        if count is not None and not (isinstance(count, Integral) and int(count) >= 0):
            refuse(compressor, what, "None or a whole number >= 0", count)
