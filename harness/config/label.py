"""Names of methods, computed from settings: two runs have one name if their methods are equal.

A name starts with the nearest preset, or with the compressor and the controller if no preset is
near. The settings that differ follow: `topk_0.1`, `topk_0.1_no_ef`, `kimad_budget=hiding`. The
compression of activations follows after a `+`. A method is how gradients and activations are sent;
the cuts of the model, its devices and its network are conditions of a run and not in the name.
"""

import hashlib
import json
import re
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from harness.config.parts import (
    Fields,
    beside,
    canonical,
    has_level,
    named,
    plain,
    presets,
    replaces,
)

FIXED = "controllers.fixed.Fixed"
DENSE = "compressors.dense.Dense"
ALL_CROSSES = "compressors.activations.dense.Dense"
SERVER = "harness.config.server.Server"
DATA = "harness.config.parallel.Data"
LOCAL = "harness.config.local_steps.LocalSteps"
ALLREDUCE = "allreduce"  # name of a dense method without a server
NUMBERS = ("int32", "int64", "float16", "bfloat16", "float32", "float64")  # data types
PLAIN = re.compile(r"[A-Za-z0-9._-]+")  # words that need no digest in a name


class Method(NamedTuple):
    """Settings that define a method: two runs have the same method if these are equal."""

    compressor: Fields
    controller: Fields
    agree: str  # local | min | mean: how workers agree on one density
    activations: Fields
    server: Fields  # empty without a parameter server
    local: Fields  # empty if workers exchange at every step
    error_feedback: bool
    residual_decay: float  # may be invalid here: a check reports it later
    overlap: str
    bucket_mb: float | None  # size of fusion buffers; None: the sizes of DDP
    fusion: str
    levels: int  # of network, of an exchange


class Columns(NamedTuple):
    """Columns of a table that describe a method, beside its name."""

    compressor: str | None  # names of choices in conf/, or of classes
    controller: str | None
    density: float | None  # configured; None if the controller chooses it
    error_feedback: bool | None
    overlap: str | None
    parallel: str | None
    dense: bool  # True: sends everything, so it is the baseline


class NamePrefix(NamedTuple):
    """Start of a method's name, and the method that this start alone would describe."""

    name: str
    base: Method
    preset: str = ""  # name of the choice of `method`; "" if it is none


def of(config: dict[str, Any], but: Container[str] = ()) -> str:
    """Return the name of the method of a run's resolved settings, without the fields in `but`."""
    method = method_of(config)
    prefix = _prefix(method)
    gradient = "_".join([prefix.name, *_tokens(method, prefix, but)])
    if method.activations == prefix.base.activations:
        return gradient
    cut = _cut(method.activations, but)
    return cut if gradient == ALLREDUCE else f"{gradient}+{cut}"


def preset_of(config: dict[str, Any]) -> str:
    """Return the nearest choice of `method`, which needs the fewest further overrides."""
    method = method_of(config)
    prefix = _prefix(method)
    every = [NamePrefix(name, method_of(told)) for name, told in presets().items()]
    return prefix.preset or min(every, key=lambda each: _distance(each, method)).name


def columns(config: dict[str, Any]) -> Columns:
    """Return the columns of a table that describe the method of a run's resolved settings."""
    method = method_of(config)
    targets = (method.compressor["_target_"], method.activations["_target_"])
    density = method.controller.get("density") if method.controller["_target_"] == FIXED else None
    return Columns(
        compressor=named("compressor", method.compressor)[0],
        controller=named("controller", method.controller)[0],
        density=density if isinstance(density, float) else None,
        error_feedback=method.error_feedback,
        overlap=method.overlap,
        parallel=named("parallel", canonical(_section(config, "parallel", DATA), config))[0],
        dense=targets == (DENSE, ALL_CROSSES) and not method.local,
    )


def method_of(config: dict[str, Any]) -> Method:
    """Return the method of a run's settings; missing settings have their defaults."""
    controller = dict(_section(config, "controller", FIXED))
    agree = controller.pop("agree", "local")
    layout = canonical(_section(config, "parallel", DATA), config)
    return Method(
        compressor=canonical(_section(config, "compressor", DENSE), config),
        controller=canonical(controller, config),
        agree=str(agree),
        activations=canonical(_section(config, "activations", ALL_CROSSES), config),
        server=layout if layout["_target_"] == SERVER else {},
        local=layout if layout["_target_"] == LOCAL else {},
        error_feedback=bool(config.get("error_feedback", False)),
        residual_decay=plain(config.get("residual_decay", 1.0), config),
        overlap=str(config.get("overlap", "per_bucket")),
        bucket_mb=plain(config.get("bucket_mb"), config),
        fusion=str(config.get("fusion", "uncompressed")),
        levels=layout.get("levels", 1),
    )


def local_of(config: dict[str, Any]) -> bool:
    """Return True if the workers of a run with these settings take local steps."""
    return bool(_section(config, "parallel", DATA)["_target_"] == LOCAL)


def _section(config: dict[str, Any], key: str, usual: str) -> dict[str, Any]:
    """Return section `key` of `config`; its class is `usual` if it names none."""
    told = config.get(key)
    if not isinstance(told, dict):
        return {"_target_": usual}
    return told if isinstance(told.get("_target_"), str) else told | {"_target_": usual}


def _prefix(method: Method) -> NamePrefix:
    """Return the nearest preset with the same parts, or a name composed of the parts' names."""
    made = {name: _made(name, told, bool(method.server)) for name, told in presets().items()}
    near = [prefix for name, prefix in made.items() if _is_kin(name, prefix.base, method)]
    return min(near, key=lambda prefix: _distance(prefix, method), default=_composed(method))


def _made(name: str, told: dict[str, Any], served: bool) -> NamePrefix:
    """Return the prefix of preset `name`; `served` turns it into its parameter-server variant."""
    base = method_of(told)
    if not served or base.server or base.local or name == ALLREDUCE:
        return NamePrefix(name, base, preset=name)
    return NamePrefix(f"{name}_ps", method_of(told | _at_a_server()), preset=name)


def _at_a_server() -> dict[str, Any]:
    """Return the settings of a run with a default parameter server."""
    return {"parallel": {"_target_": SERVER}} | beside("parallel", "server")


def _is_kin(name: str, base: Method, method: Method) -> bool:
    """Return True if `method` is a variant of the preset `name`, whose method is `base`.

    Usually both must have the same compressor and controller. A preset named after its controller
    may have any compressor, and one with local steps any compressor and controller. One that
    compresses activations, and a dense one with a server, has no variants.
    """
    is_dense = base.compressor["_target_"] == DENSE
    if base.activations["_target_"] != ALL_CROSSES or (base.server and is_dense):
        return base == method
    same = [bool(base.server) == bool(method.server), bool(base.local) == bool(method.local)]
    if base.local:
        return all(same)
    same += [base.controller["_target_"] == method.controller["_target_"]]
    if name != named("controller", base.controller)[0]:
        same += [base.compressor["_target_"] == method.compressor["_target_"]]
    return all(same)


def _distance(prefix: NamePrefix, method: Method) -> tuple[int, str]:
    ours, theirs = (dict(_leaves(each)) for each in (method, prefix.base))
    apart = [key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)]
    return len(apart), prefix.name


def _leaves(method: Method) -> Iterator[tuple[str, Any]]:
    for name, value in method._asdict().items():
        fields = value.items() if isinstance(value, dict) else [("", value)]
        yield from ((f"{name}.{key}", each) for key, each in fields)


def _composed(method: Method) -> NamePrefix:
    """Name a method by its parts; the name implies error feedback if the compressor drops some."""
    compressor, own = named("compressor", method.compressor)
    controller, rule = named("controller", method.controller)
    name = ("dense" if method.server else ALLREDUCE) if compressor == "dense" else compressor
    parts = [name, *(["ps"] if method.server else [])]
    parts += [] if rule["_target_"] == FIXED else [controller]
    target = own["_target_"]
    usual = has_level(target) and "error_feedback" not in replaces(target)
    base = method_of(_at_a_server() if method.server else {})
    base = base._replace(compressor=own, controller=rule, error_feedback=usual)
    return NamePrefix("_".join(parts), base)


def _tokens(method: Method, prefix: NamePrefix, but: Container[str]) -> Iterator[str]:
    """Yield the words of a name for all that differs from `prefix`: bare words, then key=value."""
    base = prefix.base
    if method.compressor["_target_"] != base.compressor["_target_"]:
        name, own = named("compressor", method.compressor)
        base = base._replace(compressor=own)
        yield name
    if method.controller["_target_"] != base.controller["_target_"]:
        name, rule = named("controller", method.controller)
        base = base._replace(controller=rule)
        yield name
    fixed = method.controller["_target_"] == FIXED
    if fixed and "density" not in but and _shows_density(method, prefix):
        yield _density(method.controller["density"])
    if method.error_feedback != base.error_feedback:
        yield "ef" if method.error_feedback else "no_ef"
    if method.overlap != base.overlap:
        yield method.overlap
    said = {"controller.density"} if fixed else set()
    apart = {key: each for key, each in _differing(method, base) if key not in said}
    yield from sorted(each for key, each in apart.items() if key.rpartition(".")[2] not in but)


def _shows_density(method: Method, prefix: NamePrefix) -> bool:
    """Return True if a name shows the density.

    It does if the density differs from the prefix's, or if the prefix is just a compressor that has
    a level. A preset with density 1 sends all elements in fewer bits, so its name shows none.
    """
    density, usual = method.controller["density"], prefix.base.controller["density"]
    if density != usual:
        return True
    own, _ = named("compressor", method.compressor)
    plain = prefix.name.removesuffix("_ps") == own and not (prefix.preset and usual == 1)
    return plain and has_level(method.compressor["_target_"])


def _differing(method: Method, base: Method) -> Iterator[tuple[str, str]]:
    """Yield (path, token) of fields that differ from `base`; ambiguous keys name their part."""
    sections = {"compressor": (method.compressor, base.compressor)}
    sections |= {"controller": (method.controller, base.controller)}
    sections |= {"parallel": (method.server or method.local, base.server or base.local)}
    own = [key for ours, _ in sections.values() for key in ours]
    for part, (ours, theirs) in sections.items():
        for key in {*ours, *theirs} - {"_target_"}:
            if ours.get(key) != theirs.get(key):
                name = key if own.count(key) < 2 else f"{part}.{key}"
                yield f"{part}.{key}", _token(name, ours.get(key), ours)
    if method.agree != base.agree:
        yield "agree", f"agree={method.agree}"
    for key in ("residual_decay", "bucket_mb", "fusion", "levels"):
        if (value := getattr(method, key)) != getattr(base, key):
            yield key, f"{key}={_value(value)}"


def _cut(activations: Fields, but: Container[str]) -> str:
    """Name the compression of activations at the model's cuts, with its density unless in `but`."""
    name, base = named("activations", activations)
    words = [name]
    if "density" in activations and "density" not in but:
        words.append(_density(activations["density"]))
    keys = sorted({*activations, *base} - {"_target_", "density"})
    apart = [k for k in keys if k not in but and activations.get(k) != base.get(k)]
    return "_".join([*words, *(_token(key, activations.get(key), activations) for key in apart)])


def _token(key: str, value: Any, fields: Fields) -> str:
    """Return a field as `lifespan=1` or `no_reuse`; a part's only number type is shown bare."""
    if isinstance(value, bool):
        return key if value else f"no_{key}"
    types = [each for each in fields.values() if isinstance(each, str) and each in NUMBERS]
    if isinstance(value, str) and types == [value]:
        return value
    if isinstance(value, dict) and "_target_" in value:
        words = re.findall("[A-Z]+[a-z0-9]*", value["_target_"].rpartition(".")[2])
        return f"{'_'.join(words).lower()}-{_digest([key, value])}"
    return f"{key}={_value(value)}"


def _density(value: Any) -> str:
    return _number(value) if isinstance(value, float) else f"density={_value(value)}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list) and value and not any(isinstance(x, (list, dict)) for x in value):
        return ",".join(map(_value, value))
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return _digest(value)


def _number(value: float) -> str:
    """Return the shortest text that Python reads as the same number."""
    return repr(float(value)).removesuffix(".0")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]
