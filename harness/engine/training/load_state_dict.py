"""The way back from `state_dict`: a thing of the same configuration gets the state taken.

A file is not trusted: what it holds is put into what is there already. An object gets values for
the attributes that it has, and no others; what is new is a container, or an object of a class of
the packages of those that state is put into, with the attributes that its class declares.
Functions and types are never taken from a file: they have to be those that are there; a method may
be another of the same object.
"""

import random
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.engine.training.state_dict import CODE, PLAIN, as_tuple, attributes, name_of

CONTENT = {  # of each kind of thing: how many items a file has behind its name
    "again": 1, "tuple": 1, "record": 2, "method": 2, "code": 1, "choice": 2, "dtype": 1,
    "device": 1, "scalar": 1, "array": 1, "torch generator": 2, "random": 1, "dict": 2, "list": 2,
    "set": 2, "deque": 3, "object": 2,
}  # fmt: skip
DEVICES = ("cpu", "cuda", "meta")
NEW: dict[str, Callable[[], Any]] = {
    "dict": dict, "OrderedDict": OrderedDict, "Counter": Counter,
    "list": list, "set": set, "deque": deque,
}  # fmt: skip


def load_state_dict(kept: Any, fresh: Any, where: str = "state") -> Any:
    """`fresh`, a thing of the same configuration, with the state that `state_dict` gave: in place.

    What is immutable, or a tensor, comes back as a new thing. ValueError, naming the place, where
    the kinds of things differ, or a file says what no state_dict has.
    """
    try:
        return _StateLoader().load(kept, fresh, where)
    except (TypeError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{where}: the checkpoint is damaged: {error}") from error


class _StateLoader:
    def __init__(self) -> None:
        self._met: list[Any] = []
        self._packages: set[str] = set()

    def load(self, kept: Any, fresh: Any, where: str) -> Any:
        if type(kept) in PLAIN:
            return self._checked_plain(kept, fresh, where)
        if isinstance(kept, Tensor):
            self._require(fresh is None or isinstance(fresh, Tensor), kept, fresh, where)
            return self._meet(kept)
        kind, *content = kept
        if len(content) != CONTENT.get(kind):
            raise ValueError(f"{where} is no thing that a checkpoint keeps: the file is damaged")
        return getattr(self, "_" + kind.replace(" ", "_"))(*content, fresh, where)

    def _checked_plain(self, kept: Any, fresh: Any, where: str) -> Any:
        numbers = isinstance(kept, (int, float)) and isinstance(fresh, (int, float, np.generic))
        any_kind = kept is None or fresh is None
        self._require(any_kind or numbers or type(kept) is type(fresh), kept, fresh, where)
        return kept

    def _require(self, good: bool, kept: Any, fresh: Any, where: str) -> None:
        if not good:
            told = kept[0] if isinstance(kept, tuple) else type(kept).__name__
            raise ValueError(
                f"{where} is a {type(fresh).__name__} and the checkpoint has a {told}: "
                "it is of other settings or another version"
            )

    def _meet(self, thing: Any) -> Any:
        self._met.append(thing)
        return thing

    def _again(self, number: int, fresh: Any, where: str) -> Any:
        return self._met[number]

    def _tuple(self, items: list, fresh: Any, where: str) -> tuple:
        self._require(fresh is None or type(fresh) is tuple, ("tuple",), fresh, where)
        return tuple(self._new(items, where))

    def _record(self, name: str, items: list, fresh: Any, where: str) -> Any:
        kind = self._class(name, fresh, where)
        self._require(issubclass(kind, tuple), (name,), fresh, where)
        return kind._make(self._new(items, where))

    def _new(self, items: list, where: str) -> Iterator[Any]:
        return (self.load(item, None, f"{where}[{at}]") for at, item in enumerate(items))

    def _method(self, owner: Any, name: str, fresh: Any, where: str) -> Any:
        """Another of the methods that the owner's class writes, in place of one of them."""
        self._require(isinstance(fresh, MethodType), ("method",), fresh, where)
        own = [vars(each)[name] for each in type(fresh.__self__).__mro__ if name in vars(each)]
        self._require(bool(own) and isinstance(own[0], FunctionType), ("method",), fresh, where)
        return MethodType(own[0], self.load(owner, fresh.__self__, where))

    def _code(self, name: str, fresh: Any, where: str) -> Any:
        self._require(isinstance(fresh, CODE) and name_of(fresh) == name, (name,), fresh, where)
        return fresh

    def _choice(self, name: str, member: str, fresh: Any, where: str) -> Any:
        kind = self._class(name, fresh, where)
        self._require(issubclass(kind, Enum), (name,), fresh, where)
        return kind[member]

    def _dtype(self, name: str, fresh: Any, where: str) -> torch.dtype:
        found = getattr(torch, name)
        self._require(isinstance(found, torch.dtype), ("dtype",), fresh, where)
        return found

    def _device(self, name: str, fresh: Any, where: str) -> torch.device:
        self._require(name.split(":")[0] in DEVICES, ("device",), fresh, where)
        return torch.device(name)

    def _scalar(self, value: Tensor, fresh: Any, where: str) -> Any:
        return value.numpy()[()]

    def _array(self, value: Tensor, fresh: Any, where: str) -> np.ndarray:
        self._require(fresh is None or isinstance(fresh, np.ndarray), ("array",), fresh, where)
        return self._meet(value.numpy())

    def _torch_generator(self, device: str, state: Tensor, fresh: Any, where: str) -> Any:
        good = fresh is None or isinstance(fresh, torch.Generator)
        self._require(good, ("generator",), fresh, where)
        return self._meet(fresh or torch.Generator(device)).set_state(state)

    def _random(self, state: Any, fresh: Any, where: str) -> random.Random:
        self._require(fresh is None or type(fresh) is random.Random, ("Random",), fresh, where)
        source = self._meet(fresh or random.Random())
        source.setstate(self.load(state, None, where))
        return source

    def _container(self, kind: str, fresh: Any, where: str, maxlen: int | None = None) -> Any:
        """`fresh`, emptied; or a new one."""
        good = type(fresh).__name__ == kind if fresh is not None else kind in NEW
        self._require(good, (kind,), fresh, where)
        if fresh is None:
            fresh = deque(maxlen=maxlen) if kind == "deque" else NEW[kind]()
        return self._meet(fresh)

    def _dict(self, kind: str, pairs: list, fresh: Any, where: str) -> Any:
        before = dict(fresh) if isinstance(fresh, dict) else {}
        found = self._container(kind, fresh, where)
        found.clear()
        for kept_key, kept_value in pairs:
            key = self.load(kept_key, None, where)
            found[key] = self.load(kept_value, before.get(key), f"{where}[{key!r}]")
        return found

    def _list(self, kind: str, items: list, fresh: Any, where: str) -> Any:
        before = list(fresh) if isinstance(fresh, list) else []
        before += [None] * (len(items) - len(before))
        found = self._container(kind, fresh, where)
        found.clear()
        for at, item in enumerate(items):
            found.append(self.load(item, before[at], f"{where}[{at}]"))
        return found

    def _set(self, kind: str, items: list, fresh: Any, where: str) -> Any:
        found = self._container(kind, fresh, where)
        found.clear()
        found.update(self._new(items, where))
        return found

    def _deque(self, kind: str, items: list, maxlen: int | None, fresh: Any, where: str) -> Any:
        found = self._container(kind, fresh, where, maxlen)
        found.clear()
        found.extend(self._new(items, where))
        return found

    def _object(self, name: str, held: list, fresh: Any, where: str) -> Any:
        kind = self._class(name, fresh, where)
        before, names = attributes(fresh), {attribute for attribute, _ in held}
        if lost := sorted(set(before) - names):
            raise ValueError(f"{where}.{lost[0]} is not in the checkpoint: of another version")
        if strange := sorted(names - _declared(kind, before)):
            raise ValueError(f"{where}.{strange[0]} is no state of a {kind.__name__}")
        frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
        thing = self._meet(kind.__new__(kind) if fresh is None or frozen else fresh)
        for attribute, value in held:
            new = self.load(value, before.get(attribute), f"{where}.{attribute}")
            object.__setattr__(thing, attribute, new)  # also of a frozen one
        return thing

    def _class(self, name: str, fresh: Any, where: str) -> Any:
        if fresh is None:
            return self._find(name, where)
        self._require(name_of(type(fresh)) == name, (name,), fresh, where)
        self._packages.add(name.partition(".")[0])
        return type(fresh)

    def _find(self, name: str, where: str) -> Any:
        """A class, defined where its name says, in a package of ours that is there already."""
        module, _, path = name.partition(":")
        found: Any = sys.modules.get(module)
        for part in path.split("."):
            found = vars(found).get(part) if found is not None else None
            ours = module.partition(".")[0] in self._packages and name_of(found).startswith(module)
            if not (isinstance(found, type) and ours and found.__module__ == module):
                raise ValueError(f"{where} names {name!r}, which is none of ours: it is damaged")
        return found


def _declared(kind: type, held: dict[str, Any]) -> set[str]:
    """Attributes that may get state: those `held` already, and those that classes declare."""
    noted = {name for each in kind.__mro__ for name in vars(each).get("__annotations__", {})}
    slots = {name for each in kind.__mro__ for name in as_tuple(vars(each).get("__slots__", ()))}
    cached = {name for each in kind.__mro__ for name, what in vars(each).items()
              if isinstance(what, cached_property)}  # fmt: skip
    return {*held, *noted, *slots, *cached}
