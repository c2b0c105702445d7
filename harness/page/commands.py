"""The commands that make an experiment's runs again, found by composing and comparing.

What a run's settings have beyond those that its groups compose to is told key by key.
"""

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.analysis import load

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS: tuple[str, ...] = ("network", "parallel", "activations", "profile", "model", "dataset")
GROUPS += ("compressor", "controller")
NOT_TOLD = ("results", "plan", "rerun", "report", "network.in_place_of", "network.fitted_on")
PROGRAM = "python -m harness"
MOST_KEPT = 1000  # configurations
Flat = dict[str, Any]


class Commands(NamedTuple):
    """`sweep` makes all runs, and no other, where they are a product of values; else it is ""."""

    sweep: str
    of_run: dict[str, str]  # by path


def of_runs(paths: Sequence[str]) -> Commands:
    """Of the run directories `paths`; nothing of runs whose parts this checkout does not have."""
    found = {path: overrides(path) for path in paths}
    known = {path: told for path, told in found.items() if told}
    commands = {path: command(told) for path, told in known.items()}
    whole = len(known) == len(found)
    return Commands(_sweep(known) if whole else "", commands)


def command(overrides: dict[str, str], multirun: bool = False) -> str:
    """As it is typed in a shell."""
    words = [key if key[0] == "~" else f"{key}={value}" for key, value in overrides.items()]
    return " ".join([PROGRAM + " -m" * multirun, *map(shlex.quote, words)])


def overrides(path: str) -> dict[str, str] | None:
    """What composes to the settings of the run directory `path`, by key, in order.

    None where the parts are not in this checkout's conf/.
    """
    config = _config(path)
    wanted = _flat(config)
    experiment = str(config.get("experiment"))
    told = {"+experiment": experiment} if _options("experiment").get(experiment) else {}
    for group in ("scale", "method"):
        name = (config.get(group) or {}).get("name")
        told |= {group: name} if name in _options(group) else {}
    try:
        base = _composed(tuple(told.items()))
        for group in GROUPS:
            choice = _choice(group, config.get(group), base)
            if choice:
                told[group] = choice
                base = _composed(tuple(told.items()))
    except (HydraException, OmegaConfBaseException):
        return None
    if base["experiment"] != experiment:  # a name that no command can give
        return None
    differing = _differing(base, wanted)
    if not told.get("+experiment") or "scale" not in told:
        return told | differing
    usual = _composed((("+experiment", experiment),)).get("scale.name")
    return {k: v for k, v in told.items() if (k, v) != ("scale", usual)} | differing


def _choice(group: str, section: Any, base: Flat) -> str | None:
    """The option of `group` that makes what `section` is, where `base` does not.

    It makes the same class; of several, the one of the same name.
    """
    target = section.get("_target_") if isinstance(section, dict) else None
    if target is None or target == base.get(f"{group}._target_"):
        return None
    made = [name for name, of in _options(group).items() if of == target]
    return section.get("name") if section.get("name") in made else next(iter(made), None)


@cache
def _options(group: str) -> dict[str, str]:
    """Class that each option of `group` makes, or that of what it builds on; "?" where none."""
    folder = CONF / group
    found = {}
    for file in sorted(folder.glob("*.yaml")):
        told: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        found[file.stem] = str((told or {}).get("_target_") or "?")
    return found


@cache
def _composed(overrides: tuple[tuple[str, str], ...]) -> Flat:
    with _hydra():
        config = compose("config", [f"{key}={value}" for key, value in overrides])
        return _flat(OmegaConf.to_container(config, resolve=True))


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra at conf/, whatever the program that reports did with it before."""
    known = GlobalHydra.instance()
    before, known.hydra = known.hydra, None
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def _differing(base: Flat, wanted: Flat) -> dict[str, str]:
    """Overrides that turn `base` into `wanted`."""
    found: dict[str, str] = {}
    for key in base:
        made_by = f"{key.rpartition('.')[0]}._target_"  # of runs older than a key its default holds
        if key not in wanted and base.get(made_by) != wanted.get(made_by):
            found[f"~{key}"] = ""
    for key, value in wanted.items():
        if not _within(key, NOT_TOLD) and (key not in base or base[key] != value):
            found[key if key in base else f"++{key}"] = _written(value)
    return found


def _within(key: str, keys: Sequence[str]) -> bool:
    return any(key == each or key.startswith(each + ".") for each in keys)


def _flat(value: Any, prefix: str = "") -> Flat:
    """Keys joined by dots; an empty section is a value."""
    if isinstance(value, dict) and value:
        return {
            k: v for at, each in value.items() for k, v in _flat(each, f"{prefix}{at}.").items()
        }
    return {prefix.removesuffix("."): value}


def _written(value: Any) -> str:
    """In Hydra's grammar, in which JSON's words stand for the same values."""
    if isinstance(value, str):
        bare = value.replace("_", "").replace(".", "").replace("/", "").isalnum()
        return value if bare and not _means_another(value) else json.dumps(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)


def _means_another(text: str) -> bool:
    """Whether Hydra would read the bare word as a number or as true, false, null."""
    if text.lower() in ("true", "false", "null", "inf", "nan"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _sweep(runs: dict[str, dict[str, str]]) -> str:
    """One command for all `runs`, overrides by path; "" where it would make others besides."""
    keys = list(dict.fromkeys(key for told in runs.values() for key in told))
    rows = [_filled(path, told, keys) for path, told in runs.items()]
    values = {key: _in_order({row[key] for row in rows}) for key in keys}
    makes = math.prod(len(each) for each in values.values())
    if not rows or makes != len({tuple(row.values()) for row in rows}):
        return ""
    usual = _swept(values.get("+experiment", [""])[0])
    told = {
        key: ",".join(each) for key, each in values.items() if usual.get(key, []) != sorted(each)
    }
    return command(told, multirun=True)


def _filled(path: str, told: dict[str, str], keys: Sequence[str]) -> dict[str, str]:
    """`told` with a value for each of `keys`, from the settings of the run."""
    config = _config(path)
    flat = _flat(config) | {"scale": (config.get("scale") or {}).get("name")}
    return {key: told[key] if key in told else _written(flat.get(key)) for key in keys}


@lru_cache(MOST_KEPT)
def _config(path: str) -> dict[str, Any]:
    return load.config(path)


def _in_order(values: set[str]) -> list[str]:
    """Numbers by size, then words."""
    numeric = sorted((v for v in values if _means_another(v) and v[0] in "0123456789-."), key=float)
    return numeric + sorted(values - set(numeric))


def _swept(experiment: str) -> dict[str, list[str]]:
    """What the experiment's own sweep goes through, by key, sorted."""
    file = CONF / "experiment" / f"{experiment}.yaml"
    if not file.exists():
        return {}
    told: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    params = ((told.get("hydra") or {}).get("sweeper") or {}).get("params") or {}
    return {k: sorted(each.strip() for each in str(v).split(",")) for k, v in params.items()}
