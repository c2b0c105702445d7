"""The way back from `snapshot`: a thing of the same configuration gets the state taken.

Classes are looked up by name in the packages of the objects that state is put into, and nowhere
else: a damaged file cannot run anything.
"""

import importlib
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.training.snapshot import PLAIN, attributes, name_of

NEW: dict[str, Callable[[], Any]] = {
    "dict": dict, "OrderedDict": OrderedDict, "Counter": Counter,
    "list": list, "set": set, "deque": deque,
}  # fmt: skip


def restored(kept: Any, fresh: Any, where: str = "state") -> Any:
    """`fresh`, a thing of the same configuration, with the state that was `taken`: in place.

    What is immutable, or a tensor, comes back as a new thing. ValueError, naming the place, where
    the kinds of things differ.
    """
    return _Restorer().restore(kept, fresh, where)


class _Restorer:
    def __init__(self) -> None:
        self._met: list[Any] = []
        self._packages: set[str] = set()

    def restore(self, kept: Any, fresh: Any, where: str) -> Any:
        if type(kept) in PLAIN:
            return self._checked_plain(kept, fresh, where)
        if isinstance(kept, Tensor):
            self._require(fresh is None or isinstance(fresh, Tensor), kept, fresh, where)
            return self._meet(kept)
        kind, *content = kept
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
        return self._class(name, fresh, where)._make(self._new(items, where))

    def _new(self, items: list, where: str) -> Iterator[Any]:
        return (self.restore(item, None, f"{where}[{at}]") for at, item in enumerate(items))

    def _method(self, owner: Any, name: str, fresh: Any, where: str) -> Any:
        return getattr(self.restore(owner, getattr(fresh, "__self__", None), where), name)

    def _code(self, name: str, fresh: Any, where: str) -> Any:
        return fresh if name_of(fresh) == name else self._find(name, where)

    def _choice(self, name: str, member: str, fresh: Any, where: str) -> Any:
        return self._class(name, fresh, where)[member]

    def _dtype(self, name: str, fresh: Any, where: str) -> torch.dtype:
        return getattr(torch, name)

    def _device(self, name: str, fresh: Any, where: str) -> torch.device:
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
        source.setstate(self.restore(state, None, where))
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
            key = self.restore(kept_key, None, where)
            found[key] = self.restore(kept_value, before.get(key), f"{where}[{key!r}]")
        return found

    def _list(self, kind: str, items: list, fresh: Any, where: str) -> Any:
        before = list(fresh) if isinstance(fresh, list) else []
        before += [None] * (len(items) - len(before))
        found = self._container(kind, fresh, where)
        found.clear()
        for at, item in enumerate(items):
            found.append(self.restore(item, before[at], f"{where}[{at}]"))
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
        frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
        thing = self._meet(kind.__new__(kind) if fresh is None or frozen else fresh)
        for attribute, value in held:
            new = self.restore(value, before.get(attribute), f"{where}.{attribute}")
            object.__setattr__(thing, attribute, new)  # also of a frozen one
        return thing

    def _class(self, name: str, fresh: Any, where: str) -> Any:
        if fresh is None:
            return self._find(name, where)
        self._require(name_of(type(fresh)) == name, (name,), fresh, where)
        self._packages.add(name.partition(".")[0])
        return type(fresh)

    def _find(self, name: str, where: str) -> Any:
        module, _, path = name.partition(":")
        if module.partition(".")[0] not in self._packages:
            raise ValueError(f"{where} names {name!r}, which is none of ours: the file is damaged")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        return found
