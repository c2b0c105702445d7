"""What is wrong with a command line, in one line; Hydra says it in several, or in a hundred."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

from harness.config import parts, search_path, sweep
from harness.config.search_path import CONF, folders, groups
from harness.config.typed import BadSetting, without_unit

NO_KEY = re.compile(r"Could not override '([^']*)'|Key '([^']*)' is not in struct")
SWEPT = re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '([^']*)'")
THERE = re.compile(
    r"An item is already at '([^']*)'|Multiple values for ([\w/]+)\.|group.*'\+\+(.*)="
)
ABSENT = re.compile(r"Could not delete (?:from config\. )?'([^']*)'")
NUMBER = re.compile(r"[-+]?(inf|nan|[0-9.]+(e[-+]?[0-9]+)?)|true|false")
WORD = re.compile(r"[\w.-]+")
LISTED = "`python -m harness --help` lists them"
LAUNCHER = "hydra/launcher"  # a group of Hydra's, whose choices are plugins
NEAR = 3  # that are named
MOST_NAMED = 8  # choices in a line
CALLED = {  # what other programs call it
    "bandwidth": "profile.rate_mbit", "rate": "profile.rate_mbit", "mbit": "profile.rate_mbit",
    "latency": "profile.delay_ms", "delay": "profile.delay_ms", "rtt": "profile.delay_ms",
    "nodes": "workers", "world_size": "workers", "gpus": "workers", "ranks": "workers",
    "epoch": "steps", "epochs": "steps",
    "learning_rate": "optimizer.lr", "iterations": "steps", "max_steps": "steps",
    "ratio": "controller.density", "compression_ratio": "controller.density",
    "sparsity": "controller.density", "k": "controller.density",
}  # fmt: skip


@contextmanager
def in_a_line(arguments: Sequence[str], launches: bool = False) -> Iterator[None]:
    """Raise whatever composing or checking `arguments` raises as BadSetting, in one line.

    Likewise for what would be ignored of Hydra's own keys: all but its launcher, and that too
    unless the command `launches` runs.
    """
    _check_hydra(arguments, launches)
    try:
        yield
    except BadSetting as error:
        raise BadSetting(_shortened(replaced(arguments) or str(error))) from error
    except Exception as error:
        raise BadSetting(_shortened(refused(error, arguments))) from error


def _shortened(line: str) -> str:
    """`line` without the middle of its long words, and without control characters."""
    line = "".join(each if each.isprintable() else "?" for each in line)
    return re.sub(r"\S{300,}", lambda word: f"{word[0][:200]}...{word[0][-20:]}", line)


def _check_hydra(arguments: Sequence[str], launches: bool) -> None:
    """BadSetting for the first of `arguments` that sets something of Hydra which is not used."""
    launched = any(each.startswith(f"{LAUNCHER}=") for each in arguments)
    for argument in arguments:
        key = argument.lstrip("+~").partition("=")[0]
        first, *rest = re.split(r"[./@]", key)
        if first != "hydra" or argument[:1] == "-":
            continue
        instead = (
            "of Hydra's keys there are hydra/launcher (joblib, submitit_local, submitit_slurm) and "
            "its hydra.launcher.KEY: docs/cluster.md"
        )
        if rest[:1] in (["run"], ["sweep"], ["output_subdir"]):
            instead = "write results=FOLDER for the results"
        elif rest[:1] == ["launcher"] and not launches:
            instead = "it is for `python -m harness -m`"
        elif rest[:2] == ["job", "env_set"] and launches and launched:
            continue
        elif key == LAUNCHER or (
            rest[:1] == ["launcher"]
            and len(rest) > 1
            and not any(each[:1] == "_" for each in rest)
            and (argument[:1] not in "+~" or rest[1] == "additional_parameters")
        ):
            continue
        raise BadSetting(f"{argument} does nothing here; {instead}")


def refused(error: Exception, arguments: Sequence[str]) -> str:
    """One line on an error of composing or checking `arguments`."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        return no_choice(error.missing_cfg_file or "", error.options)
    if found := NO_KEY.search(text):
        return _no_key(found[1] or found[2], arguments)
    if said := replaced(arguments):
        return said
    if nameless := next((each for each in arguments if each[:1] == "="), ""):
        return _unread(nameless)
    if found := SWEPT.search(text):
        return f"{found[1]}: several values are a sweep, which needs -m; one list is [A,B]"
    if found := THERE.search(text):
        return _added(next(filter(None, found.groups())), arguments)
    if found := ABSENT.search(text):
        return f"~{found[1]}: there is no {found[1]!r} to take away"
    if isinstance(error, OverrideParseException):
        return _unread(str(error.override))
    if text.startswith("Error merging override"):
        why = str(error.__cause__ or "it takes a value of another kind").splitlines()[0]
        return f"{text.splitlines()[0].removeprefix('Error merging override ')}: {why}"
    if isinstance(error, KeyError):
        return str(error.args[0])
    if isinstance(error, OSError) and error.strerror:
        return _of_file(error, arguments)
    first = (text.strip().splitlines() or [""])[0].strip()
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key or first.split()[-1]} must be given"
    if isinstance(error, InterpolationResolutionError):
        return next(filter(lambda each: "${" in each, arguments), "${...}") + f": {first}"
    if isinstance(error, RecursionError):
        return f"{max(arguments, key=len)}: it is nested too deeply to be read"
    return f"{_culprit(arguments)}: {first or 'it cannot be composed'}"


def _culprit(arguments: Sequence[str]) -> str:
    """The argument without which the others can be composed; all of them if there is none."""
    for argument in arguments:
        others = [each for each in arguments if each != argument]
        with suppress(Exception), sweep.hydra():
            for choice in sweep.choices(others):
                sweep.load(choice)
            return argument
    return " ".join(arguments)


def _of_file(error: OSError, arguments: Sequence[str]) -> str:
    """One line on a file that cannot be had, by the argument that names it if there is one."""
    pairs = (each.partition("=")[::2] for each in arguments)
    key = next((key for key, value in pairs if value and value in str(error.filename)), "")
    return (
        f"{key or 'a file'} must be one that can be opened, got {error.filename}: {error.strerror}"
    )


def replaced(arguments: Sequence[str]) -> str:
    """The refusal of the first argument that gives a value to a group, or to a section of keys.

    "" without one.
    """
    asked = [each for each in arguments if each.partition("=")[0]]
    return _replaced_group(asked) or _replaced_section(asked)


def _replaced_group(arguments: Sequence[str]) -> str:
    named = next(filter(_replaces_a_group, arguments), "")
    return named and f"{named}: a group takes the name of a choice; {_listed(named)}"


def _replaces_a_group(argument: str) -> bool:
    """True if `argument` assigns a plain value to a group of choices."""
    key, _, value = argument.lstrip("+").partition("=")
    is_section = value[:1] == "{" and argument[:1] != "+"  # with ++ it adds keys
    no_name = (
        value in ("null", "???")
        or value[:1] == "["
        or is_section
        or NUMBER.fullmatch(value.lower())
    )
    return bool(no_name) and any((folder / key).is_dir() for folder in folders())


def _replaced_section(arguments: Sequence[str]) -> str:
    for argument in arguments:
        key = argument.partition("=")[0]
        if key not in groups() and (inner := [each for each in keys() if _is_in(key, each)]):
            return f"{argument}: a section takes its keys one by one: {', '.join(inner)}"
    return ""


def _is_in(section: str, key: str) -> bool:
    """True if `key` is one of `section`, not of a section in it."""
    return key.rpartition(".")[0] == section


def _listed(group: str) -> str:
    """Name the command that lists the choices of a group; + and a value may be around it."""
    return f"`python -m harness --help {group.lstrip('+').partition('=')[0]}` lists them"


def no_choice(missing: str, options: Sequence[str]) -> str:
    """Say in a line what to write in place of a choice that is not there."""
    group, _, choice = missing.rpartition("/")
    near = _nearest(choice, options, cutoff=0.6)
    if group == LAUNCHER and not near:
        more = "pip install 'gradnet[cluster]' brings joblib, submitit_local and submitit_slurm"
        return f"{group} has no choice {choice!r}; choices: {', '.join(options)}; {more}"
    if not near and len(options) <= MOST_NAMED:
        return f"{group} has no choice {choice!r}; choices: {', '.join(options)}"
    return f"{group} has no choice {choice!r}{near}; {_listed(group)}"


def _no_key(key: str, arguments: Sequence[str]) -> str:
    """Say what to write in place of a key that is not there: one of this section or another."""
    given = _given(key, arguments)
    if "@" in key and given == key:
        head = "# @package _global_"
        group, _, where = key.partition("@")
        return (
            f"a choice of {where.split('.')[0]} with `override /{group}` must begin with `{head}`"
        )
    known, choices = _composed([each for each in arguments if each != given])
    section, _, last = key.rpartition(".")
    place, _, value = given.partition("=")
    if value[:1] == "{" and place in choices and "_target_" in value:
        return f"{given}: a group takes the name of a choice; {_listed(place)}"
    inner = [name.rpartition(".")[2] for name in known if _is_in(key, name)]
    if inner and not set(re.findall(r"[{,]\s*(\w+)\s*:", value)) <= set(inner):
        return f"{given}: {key} has other keys: {', '.join(inner)}"
    if value[:1] == "{" and place[:1] != "+" and place in known:
        return f"{given}: a mapping changes the keys that are there; write ++{place}={{...}}"
    if section in known or section in choices:
        return f"{given}: {_not_in(section, last, known, choices, arguments)}"
    said = f"{given}: there is no key {key!r}"
    elsewhere = _elsewhere(last, known) or list(filter(None, [CALLED.get(key.lower())]))
    if elsewhere:
        return f"{said}; write {' or '.join(f'{each}=' for each in elsewhere[:NEAR])}"
    return f"{said}{_nearest(key, keys(), cutoff=0.65)}; {LISTED}"


def _not_in(
    section: str,
    last: str,
    known: Sequence[str],
    choices: Mapping[str, str],
    arguments: Sequence[str],
) -> str:
    """Why there is no `last` in a section that is there, and what to write."""
    inner = [each.rpartition(".")[2] for each in known if _is_in(section, each)]
    there = f"{section}={choices[section]}" if section in choices else section
    if last in inner:  # of a sweep some have it
        swept = next((each for each in arguments if each.startswith(f"{section}=")), section)
        return f"not all of {swept} have a key {last!r}: sweep them in two commands"
    said = f"{there} has no key {last!r}"
    if same := [each for each in inner if without_unit(each) == without_unit(last)]:
        return f"{said}; nearest: {', '.join(same)}"
    others, is_exact = _of_other_choices(section, last)
    if near := _nearest(last, inner):
        return f"{said}{near}{others if is_exact else ''}"
    if elsewhere := _elsewhere(last, known):
        return f"{said}; write {' or '.join(f'{each}=' for each in elsewhere[:NEAR])}"
    if others:
        return f"{said}{others}"
    if section == "hydra.launcher" and not inner:
        return f"it is a key of a launcher, and there is none; write {LAUNCHER}=joblib beside it"
    if inner:
        return f"{said}; keys: {', '.join(inner)}"
    return f"{said}; keys: none" if section in choices else f"{said}: write {section}=VALUE"


def _of_other_choices(group: str, last: str) -> tuple[str, bool]:
    """Choices of `group` that have such a key, with or without its unit; True if it is the same."""
    having: dict[str, list[str]] = {}
    for name, section in parts.choices(group).items() if group in groups() else ():
        for key in section:
            if without_unit(key) == without_unit(last):
                having.setdefault(key, []).append(name)
    key = last if last in having else next(iter(having), "")
    names = sorted(
        having.get(key, []), key=lambda name: not (CONF / group / f"{name}.yaml").exists()
    )
    more = ", ..." if len(names) > NEAR else ""
    said = f"; {key} is a key of {group}={', '.join(names[:NEAR])}{more}" if names else ""
    return said, key == last


def _elsewhere(last: str, known: Sequence[str]) -> list[str]:
    """Keys of a run that are called so in another section, with or without their unit."""
    own = [each for each in known if each.partition(".")[0] not in ("hydra", "scale")]
    names = {each: each.rpartition(".")[2] for each in own if last != "name"}
    alike = [each for each in own if without_unit(names.get(each, "")) == without_unit(last)]
    return [each for each in alike if names[each] == last] or alike


def _added(key: str, arguments: Sequence[str]) -> str:
    """Say what to write where + adds a key that is there already."""
    given = [each for each in arguments if each.lstrip("+").partition("=")[0] == key]
    if len(given) > 1:
        return f"{key} is said twice, by {' and '.join(given)}: say one"
    return f"{''.join(given) or key}: it is there already, so write it without +"


def _unread(argument: str) -> str:
    """Say what to write in place of an argument that is no KEY=VALUE."""
    said = f"{argument or repr('')} cannot be read as KEY=VALUE"
    key, sign, value = (each.strip() for each in argument.partition("="))
    if sign and key and WORD.fullmatch(value) and " " in argument:
        return f"{said}; write {key}={value}"
    if not sign and WORD.fullmatch(argument):
        if written := _with_its_key(argument):
            return f"{said}; write {written}"
    return f"{said}; quote what has brackets or spaces"


def _with_its_key(word: str) -> str:
    """Say what to write for a key alone, or a choice alone, maybe misspelt; "" if unknown."""
    written = {group: f"{'+' * (group == 'experiment')}{group}=" for group in groups()}
    if word in keys():
        return f"{written.get(word, f'{word}=')}VALUE"
    order = sorted(written, key=lambda group: group not in ("experiment", "method"))
    names = {group: list(search_path.choices(group)) for group in order}
    if not any(word in choices for choices in names.values()):
        known = [*keys(), *(name for choices in names.values() for name in choices)]
        word = "".join(get_close_matches(word, known, 1, cutoff=0.7))
    matches = [f"{written.get(word, f'{word}=')}VALUE"] if word in keys() else []
    matches += [f"{written[group]}{word}" for group in order if word in names[group]]
    return " or ".join(matches[:NEAR])


def _composed(arguments: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """Dotted keys of what `arguments` compose to, and the choice of each group; none if none do."""
    asked = [each for each in arguments if each[:1] != "-"]
    with suppress(HydraException), sweep.hydra():
        config = sweep.load(asked, sweep.RunMode.MULTIRUN)
        plain = OmegaConf.to_container(config, resolve=False)
        return _flat(plain), config.hydra.runtime.choices
    return [], {}


def _given(key: str, arguments: Sequence[str]) -> str:
    """The argument that names `key`; else the key."""
    last = key.split(".")[-1]
    return next((each for each in arguments if last in each.partition("=")[0]), key)


def _nearest(word: str, known: Sequence[str], cutoff: float = 0.5) -> str:
    """Name the known words that begin with `word`, and those that are spelt nearly so."""
    lower = {each.lower(): each for each in known}
    begun = [each for each in lower if len(word) > 1 and each.startswith(word.lower())]
    close = get_close_matches(word.lower(), lower, NEAR, cutoff=cutoff)
    found = list(dict.fromkeys([*begun, *close] if len(begun) <= NEAR else begun))
    more = ", ..." if len(found) > NEAR and len(begun) > NEAR else ""
    return f"; nearest: {', '.join(lower[each] for each in found[:NEAR])}{more}" if found else ""


@cache
def keys() -> list[str]:
    """All keys of conf/config.yaml, nested ones dotted, and all groups."""
    config = OmegaConf.to_container(OmegaConf.load(f"{CONF}/config.yaml"), resolve=False)
    return list(dict.fromkeys([*groups(), *_flat(config)]))


def _flat(config: Any) -> list[str]:
    """Dotted keys of nested mappings, sections among them."""
    found: list[str] = []
    waiting = [("", config)]
    while waiting:
        prefix, section = waiting.pop(0)
        if isinstance(section, Mapping):
            found += [f"{prefix}{key!s}" for key in section if key != "_target_"]
            waiting += [(f"{prefix}{key!s}.", section[key]) for key in section]
    return found
