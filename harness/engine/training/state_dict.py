"""The state of an object as plain values, whatever its class: attributes are walked.

What comes out are None, numbers, strings, tensors, lists and tuples, which
`torch.load(weights_only=True)` accepts; every other thing is a tuple whose first item says what it
is. A thing that is held at several places stays one. `load_state_dict` is the way back.
"""

import random
import sys
from collections import deque
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor

PLAIN = (type(None), bool, int, float, str)
CODE = (FunctionType, BuiltinFunctionType, type)


def state_dict(value: Any, where: str = "state") -> Any:
    """Convert `value` to plain values; TypeError, naming the place, if it cannot be kept.

    A tensor that has its memory to itself is not copied: write the result before going on.
    """
    return _StateReader().take(value, where)


def attributes(thing: object) -> dict[str, Any]:
    """Attributes of an object, from its dictionary and its slots."""
    slots = [
        slot
        for kind in type(thing).__mro__
        for slot in as_tuple(kind.__dict__.get("__slots__", ()))
        if slot not in ("__dict__", "__weakref__") and hasattr(thing, slot)
    ]
    return {slot: getattr(thing, slot) for slot in slots} | getattr(thing, "__dict__", {})


def as_tuple(slots: Any) -> tuple[str, ...]:
    """`__slots__` as a class may say them: one name, or several."""
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_object(value: Any) -> bool:
    """An instance of a class that is written in Python."""
    heap_class = type(value).__module__ not in sys.builtin_module_names
    return heap_class and (hasattr(value, "__dict__") or hasattr(type(value), "__slots__"))


class _StateReader:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of what was met, by id
        self._met: list[Any] = []  # keeps the ids theirs

    def take(self, value: Any, where: str) -> Any:
        if type(value) in PLAIN:
            return value
        if id(value) in self._numbers:
            return ("again", self._numbers[id(value)])
        if (simple := _simple(value)) is not None:
            return simple
        if isinstance(value, tuple):
            items = self._each(value, where)
            named = hasattr(value, "_fields")
            return ("record", name_of(type(value)), items) if named else ("tuple", items)
        if isinstance(value, MethodType):
            return ("method", self.take(value.__self__, where), value.__name__)
        self._numbers[id(value)] = len(self._met)
        self._met.append(value)
        return self._held(value, where)

    def _held(self, value: Any, where: str) -> Any:
        """Convert a value with an identity, which several places may hold."""
        kind = type(value).__name__
        if isinstance(value, Tensor):
            alone = value.untyped_storage().nbytes() == value.nbytes
            return value.detach() if alone else value.detach().clone()
        if isinstance(value, np.ndarray):
            return ("array", _tensor_of(value, where))
        if isinstance(value, torch.Generator):
            return ("torch generator", str(value.device), value.get_state())
        if type(value) is random.Random:
            return ("random", self.take(value.getstate(), where))
        if isinstance(value, dict):
            pairs = [tuple(self._each(pair, f"{where}[{pair[0]!r}]")) for pair in value.items()]
            return ("dict", kind, pairs)
        if isinstance(value, deque):
            return ("deque", kind, self._each(value, where), value.maxlen)
        if isinstance(value, (list, set)):
            return ("list" if isinstance(value, list) else "set", kind, self._each(value, where))
        if _is_object(value) and not isinstance(value, ModuleType):
            held = attributes(value).items()
            return ("object", name_of(type(value)), [
                (name, self.take(inner, f"{where}.{name}")) for name, inner in held
            ])  # fmt: skip
        raise TypeError(
            f"{where} is a {name_of(type(value))}, which a checkpoint cannot keep: it keeps "
            "numbers, strings, tensors, arrays, containers, random generators and objects of these"
        )

    def _each(self, values: Any, where: str) -> list[Any]:
        return [self.take(value, f"{where}[{at}]") for at, value in enumerate(values)]


def _simple(value: Any) -> tuple | None:
    """Convert a value without state of its own; None when `value` has state."""
    if isinstance(value, Enum):
        return ("choice", name_of(type(value)), value.name)
    if isinstance(value, CODE):
        return ("code", name_of(value))
    if isinstance(value, torch.dtype):
        return ("dtype", str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return ("device", str(value))
    if OmegaConf.is_config(value):  # a list or section of the configuration
        return ("setting", str(value))
    if isinstance(value, np.generic):
        return ("scalar", _tensor_of(np.asarray(value), "a number"))
    return None


def _tensor_of(array: np.ndarray, where: str) -> Tensor:
    try:
        return torch.from_numpy(array.copy(order="K"))
    except TypeError as error:
        raise TypeError(f"{where} cannot be kept in a checkpoint: {error}") from None


def name_of(thing: Any) -> str:
    """`module:qualified name` of a class or function; "" of anything else."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{module}:{name}" if name else ""
