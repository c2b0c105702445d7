"""The commands that make an experiment's runs again, found by composing and comparing.

What a run's settings have beyond those that its groups compose to is told key by key.
"""

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import label, search_path, sweep
from harness.records import printable
from harness.reporting.analysis import load
from harness.reporting.page import surroundings

GROUPS = ("network", "profile", "model", "dataset")
GROUPS_OF_A_METHOD = ("parallel", "activations", "compressor", "controller")
NOT_TOLD: tuple[str, ...] = ("results", "plan", "rerun", "report", "method", "network.in_place_of")
NOT_TOLD += ("network.fitted_on", "tracker")
PROGRAM = "python -m harness"
LAPTOP = "laptop"
MARK = "# from the files of the run, read it before you run it: "
MOST_KEPT = 1000  # configurations
Flat = dict[str, Any]


class Commands(NamedTuple):
    """`sweep` makes all runs, and no other, where they are a product of values; else it is ""."""

    sweep: str
    of_run: dict[str, str]  # by path
    elsewhere: int  # how many of the runs were not made by this state of the code on this machine


def of_runs(paths: Sequence[str]) -> Commands:
    """Return commands that repeat the run directories `paths`, except those with unknown parts.

    A command that names what it calls, or that somebody typed, is quoted behind MARK: given to a
    shell as it is, it does nothing.
    """
    typed = {path: _quoted(said) for path in paths if (said := _typed(path))}
    found = {path: overrides(path) for path in paths if path not in typed}
    known = {path: told for path, told in found.items() if told}
    commands = {path: _marked(command(told)) for path, told in known.items()} | typed
    sweep = _marked(_sweep(known)) if len(known) == len(paths) else ""
    return Commands(sweep, commands, surroundings.elsewhere(paths))


def _marked(said: str) -> str:
    """Return a command, quoted behind MARK if it names a class or a function to call."""
    return _quoted(said) if "_target_" in said else said


def _quoted(said: str) -> str:
    return MARK + shlex.quote(printable.line(said))


def _typed(path: str) -> str:
    """The command as its run has it, of one around a foreign command; "" for one of ours."""
    config = _config(path)
    return str(config.get("typed") or "") if "around" in config else ""


def command(overrides: dict[str, str], multirun: bool = False) -> str:
    """Command as it is typed in a shell."""
    words = [key if key[0] == "~" else f"{key}={value}" for key, value in overrides.items()]
    return " ".join([PROGRAM + " -m" * multirun, *map(shlex.quote, words)])


def overrides(path: str) -> dict[str, str] | None:
    """Overrides that compose to the settings of run directory `path`, by key, in order.

    None where the parts are not in this checkout's conf/.
    """
    config = _config(path)
    wanted = _flat({**config, "network_seed": load.network_seed(config)})
    experiment = str(config.get("experiment"))
    told = {"+experiment": experiment} if _options("experiment").get(experiment) else {}
    if (scale := (config.get("scale") or {}).get("name")) in _options("scale"):
        told["scale"] = str(scale)
    method = label.preset_of(config)
    try:
        # What a sweep's runs share is composed before their methods, so once for all of them.
        base = _with_groups(told, GROUPS, config)
        if method in _options("method"):
            told["method"] = str(method)
        base = _with_groups(told, GROUPS_OF_A_METHOD, config)
    except (HydraException, OmegaConfBaseException):
        return None
    if base["experiment"] != experiment:  # a name that no command can give
        return None
    told |= _of_its_line(told, wanted)
    differing = _differing(base, wanted)
    if not told.get("+experiment") or told.get("scale") != LAPTOP:
        return told | differing
    usual = _usual_scale(experiment)
    return {k: v for k, v in told.items() if (k, v) != ("scale", usual)} | differing


@cache
def _usual_scale(experiment: str) -> str | None:
    """The scale of `experiment` where none is said; None where it has no parts for that scale."""
    try:
        return str(_composed((("+experiment", experiment),)).get("scale.name"))
    except (HydraException, OmegaConfBaseException):
        return None


def _with_groups(told: dict[str, str], groups: Sequence[str], config: dict[str, Any]) -> Flat:
    """Settings that `told` composes to, once it has the options of `groups` that make `config`."""
    base = _composed(tuple(told.items()))
    for group in groups:
        if choice := _choice(group, config.get(group), base):
            told[group] = choice
            base = _composed(tuple(told.items()))
    return base


def _of_its_line(told: dict[str, str], wanted: Flat) -> dict[str, str]:
    """Overrides that leave one run of the experiment's comparison, beside the method."""
    keys = {key: "" for choice in _choices(told) for key in choice}
    if "method" in told:
        keys = {key: "" for key in keys if key.partition(".")[0] not in sweep.OF_A_METHOD}
    if any(key not in wanted for key in keys):  # a group, which is known by its values alone
        return {"comparison": "[]"}
    return {key: _written(wanted[key]) for key in keys}


def _choices(told: dict[str, str]) -> list[dict[str, str]]:
    """Overrides that the comparison gives each of its runs; none without a comparison."""
    whole = tuple(f"{key}={told[key]}" for key in ("+experiment", "scale") if key in told)
    return _lines(whole) if "+experiment" in told else []


@cache
def _lines(whole: tuple[str, ...]) -> list[dict[str, str]]:
    with _hydra():
        found = [[each for each in one if each not in whole] for one in sweep.choices(whole)]
    return [dict(_split(each) for each in choice) for choice in found if choice]


def _split(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value


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
    found = {}
    for name, file in search_path.choices(group).items():
        told = search_path.values(file) or {}
        found[name] = str(told.get("_target_") or "?")
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
        with sweep.hydra():
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
        known = _following(key, wanted, base)
        if not _within(key, NOT_TOLD) and (key not in base or known != value):
            found[key if key in base else f"++{key}"] = _written(value)
    return found


def _following(key: str, wanted: Flat, base: Flat) -> Any:
    """Return what `key` composes to once the `wanted` seeds are said, which others follow."""
    if key == "network_seed":
        return wanted.get("seed")
    if load.is_network_seed(key) and base.get(key) == base["network_seed"]:
        return wanted["network_seed"]
    of_a_method = key.partition(".")[0] in sweep.OF_A_METHOD and key.endswith(".seed")
    if of_a_method and base.get(key) == base["seed"]:
        return wanted["seed"]
    return base.get(key)


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
    """Write a value in Hydra's grammar, in which JSON's words stand for the same values."""
    if isinstance(value, str):
        bare = value.replace("_", "").replace(".", "").replace("/", "").isalnum()
        return value if bare and not _means_another(value) else json.dumps(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)


def _means_another(text: str) -> bool:
    """True if Hydra would read the bare word as a number or as true, false or null."""
    if text.lower() in ("true", "false", "null", "inf", "nan"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _sweep(runs: dict[str, dict[str, str]]) -> str:
    """One command for all `runs`, overrides by path; "" if it would start others too."""
    if (whole := _whole(runs)) is not None:
        return command(whole)
    keys = list(dict.fromkeys(key for told in runs.values() for key in told))
    rows = [_filled(path, told, keys) for path, told in runs.items()]
    values = {key: _in_order({row[key] for row in rows}) for key in keys}
    makes = math.prod(len(each) for each in values.values())
    if not rows or makes != len({tuple(row.values()) for row in rows}):
        return ""
    return command({key: ",".join(each) for key, each in values.items()}, multirun=True)


def _whole(runs: dict[str, dict[str, str]]) -> dict[str, str] | None:
    """Overrides common to `runs` if they are an experiment's whole comparison; None if not."""
    found: set[int] = set()
    left = []
    for path, told in runs.items():
        choices = _choices(told)
        keys = list({key: "" for one in choices for key in one})
        whole = _filled(path, told, keys)
        at = next((at for at, one in enumerate(choices) if one.items() <= whole.items()), None)
        if at is None or at in found:
            return None
        found.add(at)
        left.append({key: value for key, value in told.items() if key not in choices[at]})
    same = bool(left) and all(each == left[0] for each in left) and len(found) == len(choices)
    return left[0] if same else None


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
