"""The way back from `state_dict`: a thing of the same configuration gets the state taken.

A file is not trusted: what it holds is put into what is there already. An object gets values for
the attributes that it has, and no others; what is new is a container, or an object of a class of
the packages of those that state is put into, with the attributes that its class declares.
Functions and types are never taken from a file: they have to be those that are there; a method may
be another of the same object. Every value is compared with the annotation of its attribute, or with
the value that it replaces: kind, and of a tensor shape and type too. Settings of our own classes,
which their constructors take, come from the configuration alone.
"""

import random
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from inspect import signature
from types import FunctionType, MethodType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor

from compressors.base import Workers
from harness.engine.training.state_dict import CODE, PLAIN, as_tuple, attributes, name_of
from harness.records.checkpoint import BadCheckpoint, refusing

CONTENT = {  # of each kind of thing: how many items a file has behind its name
    "again": 1, "tuple": 1, "record": 2, "method": 2, "code": 1, "choice": 2, "dtype": 1,
    "device": 1, "scalar": 1, "array": 1, "torch generator": 2, "random": 1, "dict": 2, "list": 2,
    "set": 2, "deque": 3, "object": 2, "setting": 1,
}  # fmt: skip
DEVICES = ("cpu", "cuda", "meta")
OURS = ("compressors", "controllers", "harness", "profiles")  # packages
WRAPPERS = ("_orig_mod", "module")  # that torch.compile and DDP put into names of parameters
DAMAGED = "it is of other settings or another version, or damaged"
MOST_LEVELS, MOST_THINGS, MOST_BITS = 50, 10_000_000, 64
NEW: dict[str, Callable[[], Any]] = {
    "dict": dict, "OrderedDict": OrderedDict, "Counter": Counter,
    "list": list, "set": set, "deque": deque,
}  # fmt: skip


def load_state_dict(kept: Any, fresh: Any, where: str = "state", hint: Any = Any) -> Any:
    """Put the state that `state_dict` gave into `fresh`, a thing of the same configuration.

    In place: immutable things and tensors alone are replaced. `hint` is the annotation of the
    value, or a dictionary of annotations by key. Raise BadCheckpoint, a ValueError of one line that
    names the place, where a kind, shape or type differs, or a file has what no state_dict gives.
    """
    with refusing(where):
        return _StateLoader().load(kept, fresh, where, hint)


def fit_parameters(
    part: Any, parameters: Mapping[str, Tensor], workers: Workers, where: str
) -> None:
    """Compare what a loaded compressor or residual keeps by parameter with the `parameters`.

    In place: names that differ only by wrappers become those of `parameters`, and tensors move to
    their device. Raise BadCheckpoint for the name of no parameter, for another shape or type, for
    values that are not finite, and for integers that are no ascending positions.
    """
    is_residual = hasattr(part, "by_parameter")
    known = {_without_wrappers(name): name for name in parameters}
    known |= {name: name for name in parameters}
    for field, held in attributes(part).items():
        keys = [key for key in held if _names(key)] if isinstance(held, dict) else []
        own = {
            name: known.get(name) or known.get(_without_wrappers(name))
            for key in keys
            for name in _names(key)
        }
        if not (is_residual or _is_ours(type(part)) or any(own.values())):
            continue  # keys of another kind, of a part from elsewhere
        for name, parameter in own.items():
            if parameter is None:
                first = next(iter(parameters), "no parameter")
                raise BadCheckpoint(
                    f"{where}.{field} is of a parameter {name!r}, which the model has not: its "
                    f"first is {first!r}; load it into the model it was taken of"
                )
        kept = [held.pop(key) for key in keys]
        for key, value in zip(keys, kept, strict=True):
            names = tuple(str(own[name]) for name in _names(key))
            held[names if isinstance(key, tuple) else names[0]] = _fitted(
                value, part, field, [parameters[name] for name in names], workers,
                f"{where}.{field}[{key!r}]",
            )  # fmt: skip
    if is_residual:
        with refusing(where):
            for name, residual in part.by_parameter().items():
                wanted = torch.empty(parameters[name].numel(), device="meta")
                require_alike(residual, wanted, f"{where} of {name}")


def _fitted(
    value: Any, part: Any, field: str, parameters: list[Tensor], workers: Workers, where: str
) -> Any:
    """`value`, where the `parameters` are, after it was compared with what `part` keeps of them."""
    if not isinstance(value, Tensor):
        inner = attributes(value) | getattr(value, "_asdict", dict)()
        for name, tensor in inner.items():
            if isinstance(tensor, Tensor):
                _fitted(tensor, part, name, parameters, workers, f"{where}.{name}")
        return value
    shapes = [parameter.shape for parameter in parameters]
    elements = sum(shape.numel() for shape in shapes)
    if hasattr(part, "by_parameter"):
        wanted: Tensor | None = torch.empty(elements, device="meta")
    else:
        like: Callable[..., Tensor | None] = getattr(part, "kept_like", lambda *given: None)
        wanted = like(field, value, shapes, workers)
    if wanted is not None:
        require_alike(value, wanted, where)
    if not value.is_floating_point():
        if wanted is not None:
            ends = torch.tensor([0, *value.flatten().tolist(), elements])
            if bool((ends.diff() < 0).any()):
                raise BadCheckpoint(f"{where} must be ascending positions in [0, {elements}]")
        return value
    return value.to(parameters[0].device).contiguous() if value.dim() else value


def require_alike(kept: Any, wanted: Tensor, where: str) -> None:
    """Raise BadCheckpoint unless `kept` has the shape and type of `wanted`, and is finite."""
    alike = isinstance(kept, Tensor) and (kept.shape, kept.dtype) == (wanted.shape, wanted.dtype)
    if not alike or kept.layout is not torch.strided:
        raise _differ(where, _described(wanted), _described(kept))
    if not bool(kept.isfinite().all()):
        raise BadCheckpoint(f"{where} must be finite, and the checkpoint has NaN or infinity")


def _names(key: Any) -> tuple[str, ...]:
    """The names of parameters that `key` consists of; none if it has anything else."""
    names = key if isinstance(key, tuple) else (key,)
    return names if all(isinstance(name, str) for name in names) else ()


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in OURS


def _described(thing: Any) -> str:
    """Kind of a value, with shape and type if it is a tensor."""
    if isinstance(thing, (Tensor, np.ndarray)):
        return f"{str(thing.dtype).removeprefix('torch.')} {list(thing.shape)}"
    return type(thing).__name__


def _differ(where: str, fresh: str, kept: str) -> BadCheckpoint:
    return BadCheckpoint(f"{where} is a {fresh} and the checkpoint has a {kept}: {DAMAGED}")


def _options(hint: Any) -> tuple[Any, ...]:
    """The kinds that an annotation allows; none if it allows all."""
    if get_origin(hint) is Annotated:
        return _options(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        nested = [_options(option) for option in get_args(hint)]
        return tuple(kind for kinds in nested for kind in kinds) if all(nested) else ()
    if get_origin(hint) in (ClassVar, Final):
        return _options(get_args(hint)[0])
    known = (isinstance(hint, type) or get_origin(hint) is not None) and hint is not Any
    return (hint,) if known or hint is None else ()


def _is_a(thing: Any, option: Any) -> bool:
    """True if `thing` is of the kind `option` of an annotation; bool is no number."""
    if get_origin(option) is Literal:
        return thing in get_args(option)
    kind = type(None) if option is None else get_origin(option) or option
    if kind in (int, float):
        return isinstance(thing, (int, kind)) and not isinstance(thing, bool)
    try:
        return isinstance(thing, kind)
    except TypeError:  # a protocol, which no value of Python's own is of
        return type(thing).__module__ != "builtins" and not isinstance(thing, Tensor)


def _inner(hint: Any, *kinds: type) -> tuple[Any, ...]:
    """Return what stands in brackets in the first option of `hint` that is one of `kinds`."""
    for option in _options(hint):
        origin = get_origin(option)
        if isinstance(origin, type) and any(issubclass(kind, origin) for kind in kinds):
            return get_args(option)
    return ()


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Annotations of the attributes of a class; none if one cannot be resolved."""
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


@cache
def _settings(kind: type) -> frozenset[str]:
    """Attributes of a class of ours that hold what its constructor was given."""
    names = signature(kind.__init__).parameters if _is_ours(kind) else ()  # type: ignore[misc]
    return frozenset(name for given in names for name in (given, f"_{given}"))


class _StateLoader:
    """Loads one state; owns the list of what it has met, which `again` refers to."""

    def __init__(self) -> None:
        self._met: list[Any] = []
        self._packages: set[str] = set()
        self._levels, self._things = 0, 0
        self._in_state = False  # within something that an object makes for itself

    def load(self, kept: Any, fresh: Any, where: str, hint: Any = Any) -> Any:
        """Return the thing that `kept` describes, to replace `fresh`, annotated by `hint`."""
        self._things += 1
        if self._levels >= MOST_LEVELS or self._things > MOST_THINGS:
            most = f"{MOST_LEVELS} levels or {MOST_THINGS} values"
            raise BadCheckpoint(f"{where[:80]} is of more than {most}: the checkpoint is damaged")
        self._levels += 1
        if type(kept) in PLAIN:
            thing = self._checked_plain(kept, fresh, where, hint)
        elif isinstance(kept, Tensor):
            thing = self._checked_tensor(kept, fresh, where)
        else:
            kind, *content = kept
            if len(content) != CONTENT.get(kind):
                raise BadCheckpoint(f"{where} is nothing that a checkpoint keeps: it is damaged")
            thing = getattr(self, "_" + kind.replace(" ", "_"))(*content, fresh, where, hint)
        self._levels -= 1
        options = _options(hint)
        same = fresh is not None and type(thing) is type(fresh)
        if options and not same and not any(_is_a(thing, option) for option in options):
            names = (getattr(option, "__name__", str(option)) for option in options)
            raise _differ(where, " or ".join(names), _described(thing))
        return thing

    def _checked_plain(self, kept: Any, fresh: Any, where: str, hint: Any) -> Any:
        """Compare with the kind of `fresh` where no annotation says which kinds there may be."""
        if isinstance(kept, int):
            most = max(MOST_BITS, fresh.bit_length() if isinstance(fresh, int) else 0)
            if kept.bit_length() > most:
                raise BadCheckpoint(f"{where} has {kept.bit_length()} bits, at most {most} may be")
        numbers = all(
            isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            for value in (kept, fresh)
        )
        alike = fresh is None or numbers or type(kept) is type(fresh)
        self._require(alike or bool(_options(hint)), kept, fresh, where)
        return kept

    def _checked_tensor(self, kept: Tensor, fresh: Any, where: str) -> Tensor:
        """Compare shape and type with `fresh`; return a tensor that alone fills its memory.

        In memory of another layout a kernel would write past the end.
        """
        self._require(fresh is None or isinstance(fresh, Tensor), kept, fresh, where)
        plain = type(kept) is Tensor and kept.layout is torch.strided and not kept.is_quantized
        if not plain or kept.is_meta or kept.is_conj() or kept.is_neg() or kept.requires_grad:
            raise BadCheckpoint(f"{where} is a tensor of a kind that no checkpoint has: damaged")
        is_nan = kept.is_floating_point() and bool(kept.isnan().any())
        memory = kept.untyped_storage().nbytes()
        if kept.nbytes > memory:
            raise BadCheckpoint(f"{where} is a tensor that overlaps with itself: damaged")
        if isinstance(fresh, Tensor):
            if (kept.shape, kept.dtype) != (fresh.shape, fresh.dtype):
                raise _differ(where, _described(fresh), _described(kept))
            is_nan = is_nan and (fresh.is_meta or not bool(fresh.isnan().any()))
            kept = kept if fresh.is_meta else kept.to(fresh.device)
        if is_nan:
            raise BadCheckpoint(f"{where} must be finite, and the checkpoint has NaN")
        order = sorted(range(kept.dim()), key=kept.stride, reverse=True)
        fills = kept.nbytes == memory and kept.permute(order).is_contiguous()
        whole = kept if fills else kept.clone(memory_format=torch.contiguous_format)
        return self._meet(whole)  # type: ignore[no-any-return]

    def _require(self, good: bool, kept: Any, fresh: Any, where: str) -> None:
        if not good:
            told = kept[0] if isinstance(kept, tuple) else _described(kept)
            raise _differ(where, _described(fresh), told)

    def _meet(self, thing: Any) -> Any:
        self._met.append(thing)
        return thing

    def _again(self, number: int, fresh: Any, where: str, hint: Any) -> Any:
        thing = self._met[number]
        self._require(fresh is None or type(thing) is type(fresh), ("again",), fresh, where)
        return thing

    def _tuple(self, items: list, fresh: Any, where: str, hint: Any) -> tuple:
        self._require(fresh is None or type(fresh) is tuple, ("tuple",), fresh, where)
        kinds = _inner(hint, tuple, list)
        if kinds and (kinds[-1] is Ellipsis or len(kinds) == 1):
            kinds = (kinds[0],) * len(items)
        if kinds and len(kinds) != len(items):
            raise _differ(where, f"tuple of {len(kinds)}", f"tuple of {len(items)}")
        before = fresh if fresh is not None and len(fresh) == len(items) else [None] * len(items)
        return tuple(
            self.load(item, was, f"{where}[{at}]", kind)
            for at, (item, was, kind) in enumerate(
                zip(items, before, kinds or (Any,) * len(items), strict=True)
            )
        )

    def _record(self, name: str, items: list, fresh: Any, where: str, hint: Any) -> Any:
        kind = self._class(name, fresh, where)
        self._require(issubclass(kind, tuple), (name,), fresh, where)
        if len(items) != len(kind._fields):
            raise _differ(where, f"record of {len(kind._fields)}", f"record of {len(items)}")
        return kind._make(
            self.load(item, None, f"{where}.{field}", _hints(kind).get(field, Any))
            for field, item in zip(kind._fields, items, strict=True)
        )

    def _method(self, owner: Any, name: str, fresh: Any, where: str, hint: Any) -> Any:
        """Another of the methods that the owner's class writes, in place of one of them."""
        self._require(isinstance(fresh, MethodType), ("method",), fresh, where)
        own = [vars(kind)[name] for kind in type(fresh.__self__).__mro__ if name in vars(kind)]
        self._require(bool(own) and isinstance(own[0], FunctionType), ("method",), fresh, where)
        return MethodType(own[0], self.load(owner, fresh.__self__, where))

    def _code(self, name: str, fresh: Any, where: str, hint: Any) -> Any:
        self._require(isinstance(fresh, CODE) and name_of(fresh) == name, (name,), fresh, where)
        return fresh

    def _setting(self, text: str, fresh: Any, where: str, hint: Any) -> Any:
        good = OmegaConf.is_config(fresh) and str(fresh) == text
        self._require(good, (f"setting {text}"[:80],), fresh, where)
        return fresh

    def _choice(self, name: str, member: str, fresh: Any, where: str, hint: Any) -> Any:
        kind = self._class(name, fresh, where)
        self._require(issubclass(kind, Enum), (name,), fresh, where)
        return kind[member]

    def _dtype(self, name: str, fresh: Any, where: str, hint: Any) -> torch.dtype:
        dtype = getattr(torch, name)
        good = isinstance(dtype, torch.dtype) and (fresh is None or dtype is fresh)
        self._require(good, (f"torch.{name}"[:40],), fresh, where)
        return dtype  # type: ignore[no-any-return]

    def _device(self, name: str, fresh: Any, where: str, hint: Any) -> torch.device:
        good = fresh is None or isinstance(fresh, torch.device)
        self._require(good and name.split(":")[0] in DEVICES, ("device",), fresh, where)
        return torch.device(name) if fresh is None else fresh

    def _scalar(self, value: Tensor, fresh: Any, where: str, hint: Any) -> Any:
        found = value.numpy()[()]
        numbers = isinstance(fresh, (int, float)) and not isinstance(fresh, bool)
        good = fresh is None or type(found) is type(fresh) or numbers
        self._require(good and isinstance(found, np.generic), (_described(found),), fresh, where)
        return found

    def _array(self, value: Tensor, fresh: Any, where: str, hint: Any) -> np.ndarray:
        self._require(fresh is None or isinstance(fresh, np.ndarray), ("array",), fresh, where)
        array: np.ndarray = value.numpy()
        if fresh is not None and (array.shape, array.dtype) != (fresh.shape, fresh.dtype):
            raise _differ(where, _described(fresh), _described(array))
        return self._meet(array)  # type: ignore[no-any-return]

    def _torch_generator(
        self, device: str, state: Tensor, fresh: Any, where: str, hint: Any
    ) -> Any:
        good = fresh is None or isinstance(fresh, torch.Generator)
        self._require(good, ("generator",), fresh, where)
        return self._meet(fresh or torch.Generator(device)).set_state(state)

    def _random(self, state: Any, fresh: Any, where: str, hint: Any) -> random.Random:
        self._require(fresh is None or type(fresh) is random.Random, ("Random",), fresh, where)
        source = self._meet(fresh or random.Random())
        source.setstate(self.load(state, None, where))
        return source  # type: ignore[no-any-return]

    def _container(self, kind: str, fresh: Any, where: str, maxlen: int | None = None) -> Any:
        """`fresh`, emptied; or a new one."""
        good = type(fresh).__name__ == kind if fresh is not None else kind in NEW
        self._require(good, (kind,), fresh, where)
        if fresh is None:
            fresh = deque(maxlen=maxlen) if kind == "deque" else NEW[kind]()
        self._meet(fresh).clear()
        return fresh

    def _dict(self, kind: str, pairs: list, fresh: Any, where: str, hint: Any) -> Any:
        before = dict(fresh) if isinstance(fresh, dict) else {}
        found = self._container(kind, fresh, where)
        key_kind, *value_kind = _inner(hint, type(found)) or (Any,)
        for kept_key, kept_value in pairs:
            key = self.load(kept_key, None, where, key_kind)
            place = f"{where}[{key!r}]"
            value_hint = hint.get(key, Any) if isinstance(hint, dict) else (*value_kind, Any)[0]
            found[key] = self.load(kept_value, before.get(key), place, value_hint)
        lost = [key for key in before if key not in found]
        if lost and isinstance(hint, dict):
            raise BadCheckpoint(f"{where}[{lost[0]!r}] is not in the checkpoint: {DAMAGED}")
        return found

    def _list(self, kind: str, items: list, fresh: Any, where: str, hint: Any) -> Any:
        before = list(fresh) if isinstance(fresh, list) else []
        found = self._container(kind, fresh, where)
        found.extend(self._new(items, before, where, _inner(hint, type(found))))
        return found

    def _set(self, kind: str, items: list, fresh: Any, where: str, hint: Any) -> Any:
        found = self._container(kind, fresh, where)
        found.update(self._new(items, [], where, _inner(hint, type(found))))
        return found

    def _deque(
        self, kind: str, items: list, maxlen: int | None, fresh: Any, where: str, hint: Any
    ) -> Any:
        before = list(fresh) if isinstance(fresh, deque) else []
        found = self._container(kind, fresh, where, maxlen)
        found.extend(self._new(items, before, where, _inner(hint, type(found))))
        return found

    def _new(self, items: list, before: list, where: str, kinds: tuple) -> list[Any]:
        """The items of a list, numbers if all `before` were; else those `before` guide by place."""
        numbers = bool(before) and all(_is_a(item, float) for item in before)
        hint = kinds[0] if kinds else float if numbers else Any
        before = before + [None] * (len(items) - len(before))
        return [
            self.load(item, before[at], f"{where}[{at}]", hint) for at, item in enumerate(items)
        ]

    def _object(self, name: str, held: list, fresh: Any, where: str, hint: Any) -> Any:
        kind = self._class(name, fresh, where)
        before, names = attributes(fresh), {attribute for attribute, _ in held}
        needed = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
        if lost := sorted((set(before) if fresh is not None else needed) - names):
            raise BadCheckpoint(f"{where}.{lost[0]} is not in the checkpoint: of another version")
        if strange := sorted(names - _declared(kind, before)):
            raise BadCheckpoint(f"{where}.{strange[0]} is no state of a {kind.__name__}")
        frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
        thing = self._meet(kind.__new__(kind) if fresh is None or frozen else fresh)
        for attribute, value in held:
            was, place = before.get(attribute), f"{where}.{attribute}"
            # What an object makes for itself, such as a counter of its own, has no settings.
            is_state = self._in_state
            self._in_state = is_state or attribute not in _settings(kind)
            new = self.load(value, was, place, _hints(kind).get(attribute, Any))
            self._in_state = is_state
            is_setting = attribute in before and attribute in _settings(kind) and not is_state
            if is_setting and type(was) in (*PLAIN, tuple) and (type(new), new) != (type(was), was):
                raise BadCheckpoint(
                    f"{place} is {was!r} by the configuration, and {new!r} in the "
                    "checkpoint: it is of other settings or damaged"
                )
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
                raise BadCheckpoint(f"{where} names {name!r}, which is none of ours: it is damaged")
        return found


def _declared(kind: type, held: dict[str, Any]) -> set[str]:
    """Attributes that may get state: those `held` already, and those that classes declare."""
    noted = {name for each in kind.__mro__ for name in vars(each).get("__annotations__", {})}
    slots = {name for each in kind.__mro__ for name in as_tuple(vars(each).get("__slots__", ()))}
    cached = {name for each in kind.__mro__ for name, what in vars(each).items()
              if isinstance(what, cached_property)}  # fmt: skip
    return {*held, *noted, *slots, *cached}
