"""Conversion of compressors, controllers and other parts to plain values for a file, and back.

`saving` writes them to checkpoints, and `gradnet.attached` hands them to scripts. A state is a
part's attributes by name, as numbers, strings, tensors, tuples, lists and dictionaries, which
`torch.load(weights_only=True)` reads. It names no class. Annotations, and the values of a newly
built part, decide what each value must be. So a crafted file can change values but nothing else.
"""

import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, partial
from inspect import isabstract, signature
from types import ModuleType, NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import Tensor

from compressors.base import Workers
from harness.records.checkpoint import BadCheckpoint, refusing

PLAIN = (NoneType, bool, int, float, str)
NUMBERS = (np.float64, np.int64)  # converted to Python's own numbers
LISTS = (list, deque, set, frozenset)
WRAPPERS = ("_orig_mod", "module")  # added to parameter names by torch.compile and DDP
OURS = ("compressors", "controllers", "harness", "profiles")  # our own packages
MOST_LEVELS, MOST_VALUES, MOST_BITS = 50, 1_000_000, 64
DAMAGED = "it is of other settings or another version, or damaged"


def state_dict(part: Any, where: str = "state") -> Any:
    """Return the state of `part` as plain values, which may share the memory of its tensors.

    Raise TypeError, naming the place, for a value that a checkpoint cannot keep.
    """
    return _plain(part, Any, where, 0)


def _plain(value: Any, hint: Any, where: str, levels: int, is_item: bool = False) -> Any:
    """Return `value` as numbers, strings, tensors and containers, which a checkpoint can keep.

    `where` names it in errors. If it `is_item` of a container, `hint` must name its class. Raise
    TypeError for other values, and for more than MOST_LEVELS levels.
    """
    kind: Any = type(value)
    if kind in PLAIN or isinstance(value, torch.dtype):
        return value
    if isinstance(value, NUMBERS):
        return value.item()
    if isinstance(value, Tensor):
        owns_memory = value.untyped_storage().nbytes() == value.nbytes
        return value.detach() if owns_memory else value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if kind is random.Random:
        return value.getstate()
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value)
    is_object, is_record = _is_object(value), hasattr(kind, "_fields")
    is_known = not (is_item and (is_object or is_record)) or kind in _options(hint)
    can_be_kept = is_object or isinstance(value, (tuple, dict, *LISTS))
    if levels > MOST_LEVELS or not (is_known and can_be_kept):
        raise TypeError(
            f"{where[:200]} is a {kind.__name__}, which a checkpoint cannot keep: it keeps "
            "numbers, strings, tensors, random generators, containers, and objects in them whose "
            "class is annotated; a setting annotated Any is left out"
        )
    if isinstance(value, dict):
        key_hint, item_hint = _item_hints(kind, hint, len(value))
        return {
            _plain(key, key_hint, f"{where}[{key!r}]", levels + 1, True):
            _plain(item, item_hint, f"{where}[{key!r}]", levels + 1, True)
            for key, item in value.items()
        }  # fmt: skip
    if not is_object:
        hints = _item_hints(kind, hint, len(value))
        items = [
            _plain(item, hints[at], f"{where}[{at}]", levels + 1, True)
            for at, item in enumerate(value)
        ]
        return tuple(items) if isinstance(value, tuple) else items
    return {
        name: _plain(held, _hints(kind).get(name), f"{where}.{name}", levels + 1)
        for name, held in _attributes(value).items()
    }


def load_state_dict(kept: Any, fresh: Any, where: str = "state", hint: Any = None) -> Any:
    """Load `kept`, returned by `state_dict`, into `fresh`, a part of the same configuration.

    Return `fresh`, changed in place, or its replacement if it is immutable. Without `fresh`, return
    a new value of the annotation `hint`. Raise BadCheckpoint, a ValueError of one line that names
    the place, if a kind, a shape, a type or a setting differs.
    """
    with refusing(where):
        waiting, count = [(kept, 0)], 0
        while waiting:
            value, level = waiting.pop()
            inner = [*value] if isinstance(value, (dict, list, tuple)) else []
            inner += value.values() if isinstance(value, dict) else []
            waiting += [(item, level + 1) for item in inner]
            count += len(inner)
            if level > MOST_LEVELS or count > MOST_VALUES:
                most = f"{MOST_LEVELS} levels or {MOST_VALUES} values"
                raise BadCheckpoint(f"{where} is of more than {most}: it is damaged")
        return _loaded(kept, fresh, hint, where, has_settings=fresh is not None)


def _loaded(kept: Any, fresh: Any, hint: Any, where: str, has_settings: bool = False) -> Any:
    """Return `kept` as one of the kinds that `hint` allows, or without a hint as that of `fresh`.

    With `has_settings`, constructor arguments must equal those of the configuration. Raise
    BadCheckpoint, naming `where`, if no kind fits.
    """
    options = _options(hint)
    if not options and fresh is not None:
        is_number = isinstance(fresh, (int, float, np.number)) and not isinstance(fresh, bool)
        options = (float if is_number else type(fresh),)
    refusals = []
    for option in options or (type(kept),):
        try:
            return _loaded_as(option, kept, fresh, where, has_settings)
        except BadCheckpoint as refusal:
            refusals.append(refusal)
    inside = [refusal for refusal in refusals if not str(refusal).startswith(f"{where} is a ")]
    names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise (inside or (refusals if len(refusals) == 1 else [_differ(where, names, kept)]))[0]


def _loaded_as(hint: Any, kept: Any, fresh: Any, where: str, has_settings: bool) -> Any:
    """Return `kept` as a value of the kind `hint`. Raise BadCheckpoint if it is of another kind."""
    kind: Any = get_origin(hint) or hint

    def require(is_good: bool, wanted: str = "") -> None:
        if not is_good:
            raise _differ(where, wanted or getattr(kind, "__name__", str(kind)), kept)

    if kind is Literal:
        require(kept in get_args(hint), str(hint))
        return kept
    if kind in PLAIN:
        require(type(kept) is kind or (kind is float and type(kept) is int))
        if type(kept) is int and kept.bit_length() > MOST_BITS:
            raise BadCheckpoint(f"{where} has {kept.bit_length()} bits, at most {MOST_BITS} may be")
        return kept
    if kind is torch.dtype:
        require(isinstance(kept, kind) and fresh in (None, kept), str(fresh))
        return kept
    if OmegaConf.is_config(fresh):
        require(kept == OmegaConf.to_container(fresh), str(fresh))
        return fresh
    if not isinstance(kind, type):  # such as a Callable
        kind = type(fresh)
    if issubclass(kind, Tensor):
        return _tensor(kept, fresh, where)
    if issubclass(kind, torch.Generator):
        return (fresh or torch.Generator()).set_state(kept)
    if issubclass(kind, random.Random):
        fresh = fresh or random.Random()
        fresh.setstate(kept)
        return fresh
    if not issubclass(kind, Collection):
        return _loaded_object(kind, kept, fresh, where, has_settings)
    plain_kind = dict if issubclass(kind, Mapping) else tuple if issubclass(kind, tuple) else list
    require(type(kept) is plain_kind)
    hints = _item_hints(kind, hint, len(kept))
    if issubclass(kind, Mapping):
        before = dict(fresh or {})
        found: Any = {
            _loaded(key, None, hints[0], f"{where}[{key!r}]"):
            _loaded(item, before.get(key), hints[1], f"{where}[{key!r}]")
            for key, item in kept.items()
        }  # fmt: skip
    else:
        require(len(hints) == len(kept), f"{kind.__name__} of {len(hints)}")
        items_before = [*(fresh or ()), *[None] * len(kept)]
        found = [
            _loaded(item, items_before[at], hints[at], f"{where}[{at}]")
            for at, item in enumerate(kept)
        ]
    if isinstance(fresh, kind) and hasattr(fresh, "clear"):  # keep its identity and maxlen
        add: Any = getattr(fresh, "extend", getattr(fresh, "update", None))
        fresh.clear()
        add(found)
        return fresh
    if hasattr(kind, "_fields"):
        return kind(*found)
    return (plain_kind if isabstract(kind) else kind)(found)


def _loaded_object(kind: Any, kept: Any, fresh: Any, where: str, has_settings: bool) -> Any:
    """Set the attributes in `kept` on `fresh`, or on a new dataclass of `kind`; return the object.

    Raise BadCheckpoint, naming `where`, for missing or unknown attributes. Also raise it for
    attributes annotated Final, and with `has_settings` for settings, that differ from the
    configuration.
    """
    is_new = not _is_object(fresh)
    kind = kind if is_new else type(fresh)
    if type(kept) is not dict or (is_new and not is_dataclass(kind)):
        raise _differ(where, kind.__name__, kept)
    held = {} if is_new else _attributes(fresh)
    needed = [field.name for field in fields(kind)] if is_new else held
    annotated, settings = _hints(kind), _settings(kind)
    if missing := [name for name in needed if name not in kept]:
        raise BadCheckpoint(f"{where}.{missing[0]} is not in the checkpoint: {DAMAGED}")
    if unknown := [name for name in kept if name not in held and name not in annotated]:
        raise BadCheckpoint(f"{where}.{unknown[0]} is no state of a {kind.__name__}: {DAMAGED}")
    thing, is_frozen = fresh, getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    if is_new or is_frozen:
        thing = kind.__new__(kind)
        for name, value in getattr(fresh, "__dict__", {}).items():
            object.__setattr__(thing, name, value)
    for name, value in kept.items():
        place, now = f"{where}.{name}", held.get(name)
        is_setting = has_settings and name in settings and kind.__module__.split(".")[0] in OURS
        is_final = not is_new and get_origin(annotated.get(name)) is Final
        if (is_setting or is_final) and not _is_object(now):
            if (wanted := state_dict(now)) != value:
                raise BadCheckpoint(
                    f"{place} is {wanted!r} by the configuration, and {value!r} in the checkpoint: "
                    "it is of other settings or damaged"
                )
            continue
        new = _loaded(value, now, annotated.get(name), place, has_settings=is_setting)
        object.__setattr__(thing, name, new)  # also of a frozen one
    for name in _derived(kind):
        getattr(thing, "__dict__", {}).pop(name, None)
    return thing


def _tensor(kept: Any, fresh: Any, where: str) -> Tensor:
    """Return `kept` as a contiguous tensor. Raise BadCheckpoint unless it matches `fresh`.

    No other tensor shares its storage. In another layout a kernel would write past its end.
    """
    if type(kept) is not Tensor:
        raise _differ(where, _described(fresh) if isinstance(fresh, Tensor) else "Tensor", kept)
    is_strided = kept.layout is torch.strided and not kept.is_quantized
    if not is_strided or kept.is_meta or kept.is_conj() or kept.is_neg() or kept.requires_grad:
        raise BadCheckpoint(f"{where} is a tensor of a kind that no checkpoint has: it is damaged")
    if kept.nbytes > kept.untyped_storage().nbytes():
        raise BadCheckpoint(f"{where} is a tensor that overlaps with itself: it is damaged")
    has_nan = kept.is_floating_point() and bool(kept.isnan().any())
    if isinstance(fresh, Tensor):
        if (kept.shape, kept.dtype) != (fresh.shape, fresh.dtype):
            raise _differ(where, _described(fresh), kept)
        has_nan = has_nan and (fresh.is_meta or not bool(fresh.isnan().any()))
        kept = kept if fresh.is_meta else kept.to(fresh.device)
    if has_nan:
        raise BadCheckpoint(f"{where} must be finite, and the checkpoint has NaN")
    order = sorted(range(kept.dim()), key=kept.stride, reverse=True)
    fills = kept.nbytes == kept.untyped_storage().nbytes() and kept.permute(order).is_contiguous()
    return kept if fills else kept.clone(memory_format=torch.contiguous_format)


def fit_parameters(
    part: Any, parameters: Mapping[str, Tensor], workers: Workers, where: str
) -> None:
    """Check what a loaded compressor or residual keeps by parameter against the `parameters`.

    Changes `part` in place: names that differ only by wrappers are replaced, and tensors move to
    the parameters' device. Raise BadCheckpoint for an unknown name, another shape or type, values
    that are not finite, or integers that are not ascending positions.
    """
    is_residual = hasattr(part, "by_parameter")
    is_ours = is_residual or type(part).__module__.partition(".")[0] in OURS
    known = {_without_wrappers(name): name for name in parameters} | {n: n for n in parameters}
    for field, held in _attributes(part).items():
        keys = [key for key in held if _names(key)] if isinstance(held, dict) else []
        own = {
            name: known.get(name) or known.get(_without_wrappers(name))
            for key in keys
            for name in _names(key)
        }
        if not (is_ours or any(own.values())):
            continue  # a user's part with keys that are no parameter names
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
    """Check `value`, kept by `part` in `field`, and return it on the device of `parameters`.

    Its shape and type must be those that `part` expects for these parameters. Integers must be
    ascending positions. Raise BadCheckpoint, naming `where`, otherwise.
    """
    if not isinstance(value, Tensor):
        inner = getattr(value, "_asdict", partial(_attributes, value))()
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
    """Raise BadCheckpoint unless `kept` has the shape and type of `wanted` and is finite."""
    alike = isinstance(kept, Tensor) and (kept.shape, kept.dtype) == (wanted.shape, wanted.dtype)
    if not alike or kept.layout is not torch.strided:
        raise _differ(where, _described(wanted), kept)
    if not bool(kept.isfinite().all()):
        raise BadCheckpoint(f"{where} must be finite, and the checkpoint has NaN or infinity")


def _names(key: Any) -> tuple[str, ...]:
    """Return the parameter names in `key`, a string or a tuple of strings, or () if neither."""
    names = key if isinstance(key, tuple) else (key,)
    return names if all(isinstance(name, str) for name in names) else ()


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _described(thing: Any) -> str:
    """Return the class name of a value, or the type and shape of a tensor."""
    if isinstance(thing, Tensor):
        return f"{str(thing.dtype).removeprefix('torch.')} {list(thing.shape)}"
    return type(thing).__name__


def _differ(where: str, wanted: str, kept: Any) -> BadCheckpoint:
    return BadCheckpoint(
        f"{where} is a {wanted} and the checkpoint has a {_described(kept)}: {DAMAGED}"
    )


def _is_object(value: Any) -> bool:
    """Return True for an instance of a Python class that is not a container or a tensor."""
    builtin = (type, ModuleType, Tensor, tuple, dict, *LISTS, np.ndarray, np.generic)
    is_python = type(value).__module__ not in sys.builtin_module_names
    return (
        is_python
        and not (isinstance(value, builtin) or callable(value) or OmegaConf.is_config(value))
        and (hasattr(value, "__dict__") or hasattr(type(value), "__slots__"))
    )


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object that are state, from its `__dict__` and its slots."""
    kind: Any = type(thing)
    slots = [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]
    held = {
        name: getattr(thing, name) for name in slots if name[:2] != "__" and hasattr(thing, name)
    }
    held |= getattr(thing, "__dict__", {})
    settings, annotated, derived = _settings(kind), _hints(kind), _derived(kind)
    return {
        name: value
        for name, value in held.items()
        if name not in derived
        and not (name in settings and annotated.get(name) is Any and _is_object(value))
    }


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the annotations of a class, or {} if one cannot be resolved."""
    try:
        return get_type_hints(kind)
    except (NameError, TypeError, AttributeError):
        return {}


@cache
def _settings(kind: type) -> frozenset[str]:
    """Return the names of attributes of a class that hold arguments of its constructor."""
    names = signature(kind.__init__).parameters  # type: ignore[misc]
    return frozenset(name for argument in names for name in (argument, f"_{argument}"))


@cache
def _derived(kind: type) -> frozenset[str]:
    """Return the names of attributes of a class that are cached properties."""
    return frozenset(
        name for base in kind.__mro__ for name, member in vars(base).items()
        if isinstance(member, cached_property)
    )  # fmt: skip


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the kinds that an annotation allows, or () if it allows all."""
    if get_origin(hint) in (Union, UnionType):
        nested = [_options(option) for option in get_args(hint)]
        return tuple(kind for kinds in nested for kind in kinds) if all(nested) else ()
    if get_origin(hint) in (ClassVar, Final):
        return _options(get_args(hint)[0])
    is_kind = isinstance(hint, type) or get_origin(hint) is not None
    return (hint,) if is_kind and hint not in (Any, object) else ()


def _item_hints(kind: Any, hint: Any, count: int) -> list[Any]:
    """Return the annotations of a container's `count` items, or of a mapping's key and value."""
    if hasattr(kind, "_fields"):
        return [_hints(kind).get(name) for name in kind._fields]
    for option in _options(hint):
        origin, arguments = get_origin(option), list(get_args(option))
        if not (isinstance(origin, type) and issubclass(kind, origin) and arguments):
            continue
        if issubclass(kind, Mapping):
            return [*arguments, None][:2]
        if not issubclass(kind, tuple) or arguments[-1] is Ellipsis:
            return arguments[:1] * count
        return arguments
    return [None] * (2 if issubclass(kind, Mapping) else count)
