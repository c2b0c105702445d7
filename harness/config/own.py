"""Adapters for models and data sets without our interface, from torch, a library or the user.

A section may name any class or function. Keys that the adapter does not know become its arguments.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from compressors.activations.base import Activations
from compressors.base import Compressor
from harness.config.typed import hints, is_of, is_pythons_own, located
from harness.workloads.data.base import DataSet
from harness.workloads.models.base import Architecture

KINDS: dict[str, Any] = {  # base or protocol of each kind of part that needs torch
    "model": Architecture,
    "dataset": DataSet,
    "compressor": Compressor,
    "activations": Activations,
}


class Own(NamedTuple):
    """Adapter for classes without our interface: any nn.Module, or any torch data set."""

    kind: Any  # our interface for this part
    said: str  # other accepted classes, for messages
    is_one: Callable[[Any], bool]  # tells if a class is one of these
    target: str
    keys: tuple[str, ...]


def _is_map_style(made: type) -> bool:
    return all(hasattr(made, name) for name in ("__getitem__", "__len__"))


OWN = {
    "model": Own(
        Architecture,
        "a torch.nn.Module, or a function that makes one",
        lambda made: issubclass(made, nn.Module),
        "harness.workloads.models.own.OwnModel",
        ("times", "arguments"),
    ),
    "dataset": Own(
        DataSet,
        "a map-style torch data set, or a function that makes one",
        _is_map_style,
        "harness.workloads.data.own.OwnData",
        ("classes", "train_arguments", "test_arguments", "arguments", "workers"),
    ),
}


def is_own(part: str, made: Any) -> bool:
    """Return True if `made` is a model or data set without our interface, or a function for one.

    A function's return type decides, if it has one. Python's own objects are refused.
    """
    own = OWN.get(part)
    if own is None or not callable(made) or is_pythons_own(made):
        return False
    if inspect.isclass(made):
        return own.is_one(made)
    declared = getattr(made, "__annotations__", {}).get("return", Any)
    returned = hints(made).get("return", declared)
    is_unknown = returned is Any or isinstance(returned, str)
    return is_unknown or (inspect.isclass(returned) and own.is_one(returned))


def as_part(part: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return `section`, or the adapter's section if its class or function needs the adapter."""
    own, path = OWN.get(part), section["_target_"]
    if own is None or is_of(made := located(path), own.kind) or not is_own(part, made):
        return dict(section)
    taken = {key: section[key] for key in section if key in own.keys}
    rest = {key: section[key] for key in section if key not in (*own.keys, "_target_")}
    arguments = rest | dict(taken.pop("arguments", {}))
    return {"_target_": own.target, "make": path, **taken, "arguments": arguments}
