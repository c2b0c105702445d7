"""The name of a method, computed from what it is made of: equal exactly where the settings are.

A name is that of the preset that is nearest, else of the compressor and the controller, and then
whatever differs from them: `topk_0.1`, `topk_0.1_no_ef`, `kimad_budget=hiding`.
What crosses the cuts of a model follows after a `+`. A method is how gradients and activations
travel; where a model is cut, who computes and over which network are conditions of its run.
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
ALLREDUCE = "allreduce"  # of a dense gradient, but where a server takes it
NUMBERS = ("int32", "int64", "float16", "bfloat16", "float32", "float64")  # types of numbers
PLAIN = re.compile(r"[A-Za-z0-9._-]+")  # a word that a name may have as it is


class Method(NamedTuple):
    """Settings that define a method: two runs are of one method where these are equal."""

    compressor: Fields
    controller: Fields
    agree: str  # local | min | mean: whether workers agree on one density
    activations: Fields
    server: Fields  # empty without a parameter server
    local: Fields  # empty where workers exchange at every step
    error_feedback: bool
    residual_decay: float  # unless it is bad, of which a check tells
    overlap: str
    bucket_mb: float | None  # of fusion buffers; None: as DDP has them
    fusion: str


class Columns(NamedTuple):
    """Columns of a table that describe a method, beside its name."""

    compressor: str | None  # choices of conf/, or classes
    controller: str | None
    density: float | None  # asked for; None where the controller chooses
    error_feedback: bool | None
    overlap: str | None
    parallel: str | None
    dense: bool  # nothing is left out, so that it is what others are compared with


class NamePrefix(NamedTuple):
    """Start of a method's name, and the method that the start alone would stand for."""

    name: str
    base: Method
    preset: str = ""  # choice of the group `method`, if it is one


def of(config: dict[str, Any], but: Container[str] = ()) -> str:
    """Name of the method that a run's resolved settings describe, silent of the fields `but`."""
    method = method_of(config)
    prefix = _prefix(method)
    gradient = "_".join([prefix.name, *_tokens(method, prefix, but)])
    if method.activations == prefix.base.activations:
        return gradient
    cut = _cut(method.activations, but)
    return cut if gradient == ALLREDUCE else f"{gradient}+{cut}"


def preset_of(config: dict[str, Any]) -> str:
    """The choice of `method` that is nearest: from which a command has least to say."""
    method = method_of(config)
    prefix = _prefix(method)
    every = [NamePrefix(name, method_of(told)) for name, told in presets().items()]
    return prefix.preset or min(every, key=lambda each: _distance(each, method)).name


def columns(config: dict[str, Any]) -> Columns:
    """Describe the method of a run's resolved settings, for a table."""
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
    """The part of a run's settings that makes its method; what is not said is as by default."""
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
    )


def local_of(config: dict[str, Any]) -> bool:
    """Tell whether workers of a run with these settings take local steps."""
    return bool(_section(config, "parallel", DATA)["_target_"] == LOCAL)


def _section(config: dict[str, Any], key: str, usual: str) -> dict[str, Any]:
    """Section `key` of a configuration, with `usual` as its class where it names none."""
    told = config.get(key)
    if not isinstance(told, dict):
        return {"_target_": usual}
    return told if isinstance(told.get("_target_"), str) else told | {"_target_": usual}


def _prefix(method: Method) -> NamePrefix:
    """The nearest preset of those that do the same, else the parts' own names."""
    made = {name: _made(name, told, bool(method.server)) for name, told in presets().items()}
    near = [prefix for name, prefix in made.items() if _is_kin(name, prefix.base, method)]
    return min(near, key=lambda prefix: _distance(prefix, method), default=_composed(method))


def _made(name: str, told: dict[str, Any], served: bool) -> NamePrefix:
    """The preset `name`; where gradients are `served`, what it is over a parameter server."""
    base = method_of(told)
    if not served or base.server or base.local or name == ALLREDUCE:
        return NamePrefix(name, base, preset=name)
    return NamePrefix(f"{name}_ps", method_of(told | _at_a_server()), preset=name)


def _at_a_server() -> dict[str, Any]:
    """Settings of a run over a parameter server as it is by default."""
    return {"parallel": {"_target_": SERVER}} | beside("parallel", "server")


def _is_kin(name: str, base: Method, method: Method) -> bool:
    """True if `method` varies a preset: same controller, same compressor.

    A preset that is called as its controller has any compressor; one whose workers take local
    steps has any of both. One that compresses activations too is a whole, or it is none; so is a
    dense one at a server, which has nothing else to vary.
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
    """Name a method without a near preset; feedback is usual where a density drops something."""
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
    """Words for what differs from the prefix: bare words, then keys with values."""
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
    """Beside a compressor's own name a density always stands, whatever the default.

    A preset of density 1 sends all, in fewer bits.
    """
    density, usual = method.controller["density"], prefix.base.controller["density"]
    if density != usual:
        return True
    own, _ = named("compressor", method.compressor)
    plain = prefix.name.removesuffix("_ps") == own and not (prefix.preset and usual == 1)
    return plain and has_level(method.compressor["_target_"])


def _differing(method: Method, base: Method) -> Iterator[tuple[str, str]]:
    """Fields that are not as in the base; one that two parts have says which part's it is."""
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
    for key in ("residual_decay", "bucket_mb", "fusion"):
        if (value := getattr(method, key)) != getattr(base, key):
            yield key, f"{key}={_value(value)}"


def _cut(activations: Fields, but: Container[str]) -> str:
    """Name the compression at the cuts of a model, its density always included."""
    name, base = named("activations", activations)
    words = [name]
    if "density" in activations and "density" not in but:
        words.append(_density(activations["density"]))
    keys = sorted({*activations, *base} - {"_target_", "density"})
    apart = [k for k in keys if k not in but and activations.get(k) != base.get(k)]
    return "_".join([*words, *(_token(key, activations.get(key), activations) for key in apart)])


def _token(key: str, value: Any, fields: Fields) -> str:
    """`lifespan=1`, `no_reuse`; the one type of numbers that a part has stands alone."""
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
    """The shortest that reads as the same number."""
    return repr(float(value)).removesuffix(".0")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]
