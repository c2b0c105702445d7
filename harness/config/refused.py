"""One-line error messages for bad command lines, in place of Hydra's messages of many lines."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

from harness.config import parts, search_path, sweep
from harness.config.search_path import CONF, groups, keys
from harness.config.typed import BadSetting, without_unit

NO_KEY = re.compile(
    r"Could not override '([^']*)'|Key '[^']*' is not in struct\s+full_key: (\S+)|"
    r"Key '([^']*)' is not in struct"
)
SWEPT = re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '([^']*)'")
THERE = re.compile(
    r"An item is already at '([^']*)'|Multiple values for ([\w/]+)\.|group.*'\+\+(.*)=|"
    r"([\w/]+) appears more than once"
)
NO_GROUP = re.compile(r"Override (\S.*) looks like a config group override")
RAISED = re.compile(r"^\w+ (?:raised )?while resolving interpolation: ")
QUOTES = "'\""
NUMBER = re.compile(r"[-+]?(inf|nan|[0-9.]+(e[-+]?[0-9]+)?)|true|false")
WORD = re.compile(r"[\w.-]+")
LISTED = "`python -m harness --help` lists them"
LAUNCHER = "hydra/launcher"  # Hydra's own group; its choices are plugins
NEAR = 3  # most suggestions in a message
MOST_NAMED = 8  # most choices that a message lists
CALLED = {  # our keys by the names that other programs use
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
    """Context manager: raise any error of composing or checking `arguments` as a short BadSetting.

    Also raise BadSetting for Hydra's own keys, which would have no effect. Its launcher is allowed
    if the command `launches` runs.
    """
    _check_hydra(arguments, launches)
    try:
        yield
    except BadSetting as error:
        said = _taken_away(str(error), arguments) or replaced(arguments) or str(error)
        raise BadSetting(_shortened(said)) from error
    except Exception as error:
        raise BadSetting(_shortened(refused(error, arguments))) from error


def _shortened(line: str) -> str:
    """Shorten words of 300 or more characters and replace control characters by "?"."""
    line = "".join(each if each.isprintable() else "?" for each in line)
    return re.sub(r"\S{300,}", lambda word: f"{word[0][:200]}...{word[0][-20:]}", line)


def _check_hydra(arguments: Sequence[str], launches: bool) -> None:
    """Raise BadSetting for the first argument that sets a key of Hydra which has no effect here."""
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
        elif key == LAUNCHER:
            continue
        elif rest[:1] == ["launcher"] and len(rest) > 1 and "_" not in {each[:1] for each in rest}:
            if argument[:1] not in "+~" or rest[1] == "additional_parameters":
                continue
        raise BadSetting(f"{argument} does nothing here; {instead}")


def refused(error: Exception, arguments: Sequence[str]) -> str:
    """Return a one-line message for an error of composing or checking `arguments`."""
    text = str(error)
    if nameless := next((each for each in arguments if each[:1] == "="), ""):
        return _unread(nameless)
    if isinstance(error, MissingConfigException) and error.options is not None:
        return no_choice(error.missing_cfg_file or "", error.options)
    if said := _taken_away(text, arguments):
        return said
    if found := NO_KEY.search(text):
        return _no_key(found[1] or found[2] or found[3], arguments)
    if said := replaced(arguments):
        return said
    if found := SWEPT.search(text):
        return _swept(found[1], arguments)
    if found := NO_GROUP.search(text):
        key, _, value = found[1].partition("=")
        return f"{found[1]}: only a group has a package; write {key.partition('@')[0]}={value}"
    if found := THERE.search(text):
        return _added(next(filter(None, found.groups())), arguments)
    if isinstance(error, OverrideParseException):
        return _unread(str(error.override))
    if text.startswith("Error merging override"):
        override = text.splitlines()[0].removeprefix("Error merging override ")
        why = str(error.__cause__ or "it takes a value of another kind").splitlines()[0]
        if "Cannot merge" in why:
            why = "a section is no list; write one of its keys at a time"
        return f"{override}: {why}"
    if isinstance(error, KeyError):
        return str(error.args[0])
    if isinstance(error, OSError) and error.strerror:
        return _of_file(error, arguments)
    first = (text.strip().splitlines() or [""])[0].strip()
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key or first.split()[-1]} must be given"
    if isinstance(error, InterpolationResolutionError):
        why = RAISED.sub("", first)
        return f"{next(filter(lambda each: '${' in each, arguments), '${...}')}: {why}"
    if isinstance(error, RecursionError):
        return f"{max(arguments, key=len)}: it is nested too deeply to be read"
    culprit = _culprit(arguments)
    return f"{culprit}{': ' if culprit else ''}{first or 'it cannot be composed'}"


def _culprit(arguments: Sequence[str]) -> str:
    """Return the argument that breaks the composition: "" if none does, all if several do."""
    for argument in ("", *arguments):
        others = [each for each in arguments if each != argument]
        with suppress(Exception), sweep.hydra():
            for choice in sweep.choices(others):
                sweep.settings_of(choice)
            return argument
    return " ".join(arguments)


def _taken_away(text: str, arguments: Sequence[str]) -> str:
    """Return a message on the `~KEY` argument that removed a missing key; "" if none did.

    Removing keys can be right: the user's own class may lack a key that a choice sets.
    """
    for taken in (each for each in arguments if each[:1] == "~" and _reads(each)):
        key = taken[1:].partition("=")[0]
        last = re.escape(key.rpartition(".")[2])
        missing = rf"^'?{re.escape(key)}\b|delete.*'{re.escape(key)}|'{last}' must be given"
        if key.partition(".")[0] not in keys():
            return f"{taken}: there is no {key!r} to take away; leave this word out"
        if key in groups() or re.search(missing, text):
            return f"{taken}: a run needs every key and group; leave this word out"
    return ""


def _swept(argument: str, arguments: Sequence[str]) -> str:
    """Return a message that shows how to write several values, as a sweep or as one list."""
    key, _, value = argument.lstrip("+").partition("=")
    is_there = argument[:1] == "+" and key in _composed([a for a in arguments if a != argument])[0]
    if is_there and key not in groups():
        return _added(key, arguments)
    one_list = "; one list is [A,B]" * (key not in groups() and "(" not in value)
    return f"{argument}: several values are a sweep, which needs -m{one_list}"


def _of_file(error: OSError, arguments: Sequence[str]) -> str:
    """Return a message on a file that cannot be opened, with the argument that names it."""
    pairs = (each.lstrip("+").partition("=")[::2] for each in arguments)
    named = ((key, value) for key, value in pairs if value and value in str(error.filename))
    key, value = next(named, ("a file", ""))
    if _is_group(key):
        return f"{key} has no choice {value!r}; {_listed(key)}"
    return f"{key} must be one that can be opened, got {error.filename}: {error.strerror}"


def replaced(arguments: Sequence[str]) -> str:
    """Return a message on the first argument that replaces a group or section; "" if none."""
    asked = [each for each in arguments if each.partition("=")[0]]
    if named := next(filter(_replaces_a_group, asked), ""):
        key, _, value = named.lstrip("+").partition("=")
        instead = _choice_of(key, value) if "_target_" in value else _listed(named)
        return f"{named}: a group takes the name of a choice; {instead}"
    for argument in asked:
        key = argument.partition("=")[0]
        if key not in groups() and (inner := [each for each in keys() if _is_in(key, each)]):
            return f"{argument}: a section takes its keys one by one: {', '.join(inner)}"
    return ""


def _replaces_a_group(argument: str) -> bool:
    """Return True if `argument` assigns a plain value to a group of choices."""
    key, _, value = argument.lstrip("+").partition("=")
    is_section = value[:1] == "{" and argument[:1] != "+"  # ++KEY={...} adds keys
    is_plain = value in ("null", "???") or argument[-1:] == "=" or value.startswith(("[", "${"))
    numbers = any(NUMBER.fullmatch(each) for each in value.lower().split(","))
    return (is_plain or is_section or numbers) and _is_group(key)


def _is_group(key: str) -> bool:
    """Return True if `key` is a group of choices, such as `network/device`."""
    group = key.partition("@")[0]
    return group in groups(group.rpartition("/")[0])


def _is_in(section: str, key: str) -> bool:
    """Return True if `key` is directly in `section` and is not `_target_`."""
    place, _, last = key.rpartition(".")
    return place == section and last != "_target_"


def _listed(group: str) -> str:
    """Return a hint with the command that lists a group's choices; `group` may be GROUP=VALUE."""
    return f"`python -m harness --help {group.lstrip('+').partition('=')[0]}` lists them"


def no_choice(missing: str, options: Sequence[str]) -> str:
    """Return a message for the missing choice `GROUP/CHOICE`, with the nearest of `options`."""
    group, _, choice = missing.rpartition("/")
    near = _nearest(choice, options, cutoff=0.6)
    if group == LAUNCHER and not near:
        more = "pip install 'gradnet[cluster]' brings joblib, submitit_local and submitit_slurm"
        return f"{group} has no choice {choice!r}; choices: {', '.join(options)}; {more}"
    if not near and len(options) <= MOST_NAMED:
        return f"{group} has no choice {choice!r}; choices: {', '.join(options)}"
    return f"{group} has no choice {choice!r}{near}; {_listed(group)}"


def _no_key(key: str, arguments: Sequence[str]) -> str:
    """Return a message for a key that does not exist, with the key that the user may have meant."""
    given = _given(key, arguments)
    group, _, choice = key.rpartition("/")
    if _is_group(group) and choice in search_path.choices(group):
        return f"{given}: there is no key {key!r}; write {group}={choice}"
    if "@" in key and given == key:
        group, _, where = key.partition("@")
        choice = f"a choice of {where.split('.')[0]} with `override /{group}`"
        return f"{choice} must begin with `# @package _global_`"
    known, choices = _composed([each for each in arguments if each != given])
    section, _, last = key.rpartition(".")
    place, _, value = given.partition("=")
    if value[:1] == "{" and place in choices and "_target_" in value:
        return f"{given}: a group takes the name of a choice; {_choice_of(place, value)}"
    inner = [name.rpartition(".")[2] for name in known if _is_in(key, name)]
    if inner and not set(re.findall(r"[{,]\s*(\w+)\s*:", value)) <= set(inner):
        return f"{given}: {key} has other keys: {', '.join(inner)}"
    if value[:1] == "{" and place[:1] != "+" and place in known:
        return f"{given}: a mapping changes the keys that are there; write ++{place}={{...}}"
    if section in known or section in choices:
        return f"{given}: {_not_in(key, known, choices, arguments)}"
    said = f"{given}: there is no key {key!r}"
    elsewhere = _elsewhere(last, known) or list(filter(None, [CALLED.get(key.lower())]))
    if elsewhere:
        return f"{said}; write {' or '.join(f'{each}=' for each in elsewhere[:NEAR])}"
    return f"{said}{_nearest(key, keys(), cutoff=0.65)}; {LISTED}"


def _choice_of(group: str, section: str) -> str:
    """Return a hint how to choose the class in a literal `section`: by a choice or a new yaml."""
    target = re.search(r"_target_:\s*([\w.]+)", section)
    name, _ = parts.named(group, {"_target_": target[1] if target else None})
    if name in search_path.choices(group):
        return f"write {group}={name}"
    return f"a class of your own has a yaml in a folder of --config-dir; {_listed(group)}"


def _not_in(
    key: str, known: Sequence[str], choices: Mapping[str, str], arguments: Sequence[str]
) -> str:
    """Return a message why `key` is not in its section, which exists, and what to write instead."""
    section, _, last = key.rpartition(".")
    inner = [each.rpartition(".")[2] for each in known if _is_in(section, each)]
    there = f"{section}={choices[section]}" if section in choices else section
    if last in inner:  # a sweep: only some choices have the key
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
    if section in choices or f"{section}._target_" in known:
        return f"{said}; keys: none"
    return f"{said}: write {section}=VALUE"


def _of_other_choices(group: str, last: str) -> tuple[str, bool]:
    """Return a hint on choices of `group` with this key but for its unit; True if it is exact."""
    having: dict[str, list[str]] = {}
    for name in search_path.choices(group) if group in groups() else ():
        for key in parts.keys_of(group, name):
            if without_unit(key) == without_unit(last):
                having.setdefault(key, []).append(name)
    if not having:
        return "", False
    key = last if last in having else next(iter(having))
    names = sorted(having[key], key=lambda name: not (CONF / group / f"{name}.yaml").exists())
    more = ", ..." * (len(names) > NEAR)
    return f"; {key} is a key of {group}={', '.join(names[:NEAR])}{more}", key == last


def _elsewhere(last: str, known: Sequence[str]) -> list[str]:
    """Return keys of other sections named `last`, or else those that differ only in the unit."""
    own = [each for each in known if each.partition(".")[0] not in ("hydra", "scale")]
    names = {each: each.rpartition(".")[2] for each in own if last != "name"}
    alike = [each for each in own if without_unit(names.get(each, "")) == without_unit(last)]
    return [each for each in alike if names[each] == last] or alike


def _added(key: str, arguments: Sequence[str]) -> str:
    """Return a message for a `+KEY` or a repeated key that exists already."""
    given = [each for each in arguments if each.lstrip("+").partition("=")[0] == key]
    if "/" in key and key not in _composed([each for each in arguments if each not in given])[1]:
        return _no_key(key, arguments)
    if len(given) > 1:
        return f"{key} is said twice, by {' and '.join(given)}: say one"
    return f"{''.join(given) or key}: it is there already, so write it without +"


def _unread(argument: str) -> str:
    """Return a message for an argument that is not KEY=VALUE, with a correction if one is known."""
    said = f"{argument or repr('')} cannot be read as KEY=VALUE"
    if WORD.fullmatch(argument.lstrip("+~-")):
        written = _with_its_key(argument.lstrip("+~-"))
        return f"{said}; write {written}" if written else f"{said}; {LISTED}"
    key, value = (*re.split(r"\s*[=:\s]\s*", argument, maxsplit=1), "")[:2]
    plain = value.strip(" =,;").strip(QUOTES)
    is_named = argument[len(key) :].lstrip()[:1] == "=" or key.partition(".")[0] in keys()
    for each in (f"{key}={plain}" if plain else "", f"{key}='{value}'"):
        if key and value and is_named and _reads(each):
            quoted = each[-1:] == "'"
            return f"{said}; {'quote what has brackets or spaces' if quoted else f'write {each}'}"
    return f"{said}; {LISTED}"


def _reads(argument: str) -> bool:
    """Return True if Hydra can parse `argument` as KEY=VALUE with a single value."""
    with suppress(Exception):
        return not OverridesParser.create().parse_override(argument).is_sweep_override()
    return False


def _with_its_key(word: str) -> str:
    """Return what to write for a lone key or choice, also if misspelt; "" if it is unknown."""
    written = {group: f"{'+' * (group == 'experiment')}{group}=" for group in groups()}
    if word in keys():
        return f"{written.get(word, f'{word}=')}VALUE"
    order = sorted(written, key=lambda group: group not in ("experiment", "method"))
    names = {group: list(search_path.choices(group)) for group in order}
    known = [*keys(), *(name for choices in names.values() for name in choices)]
    if word not in known:
        if elsewhere := [f"{key}=VALUE" for key in _elsewhere(word, keys())]:
            return " or ".join(elsewhere[:NEAR])
        word = "".join(get_close_matches(word, known, 1, cutoff=0.7))
    matches = [f"{written.get(word, f'{word}=')}VALUE"] * (word in keys())
    matches += [f"{written[group]}{word}" for group in order if word in names[group]]
    return " or ".join(matches[:NEAR])


def _composed(arguments: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """Return all dotted keys and each group's choice; both are empty if `arguments` are invalid."""
    asked = [each for each in arguments if each[:1] != "-"]
    with suppress(HydraException), sweep.hydra():
        config = sweep.load(asked, sweep.RunMode.MULTIRUN)
        plain = OmegaConf.to_container(config, resolve=False)
        return search_path.dotted(plain), config.hydra.runtime.choices
    return [], {}


def _given(key: str, arguments: Sequence[str]) -> str:
    """Return the argument that sets `key` or a section around it; else `key` itself."""
    names = [(each.partition("=")[0].lstrip("+~"), each) for each in arguments]
    exact = [each for name, each in names if name == key]
    around = [each for name, each in names if name and key.startswith((f"{name}.", f"{name}@"))]
    last = [each for name, each in names if name.rpartition(".")[2] == key.rpartition(".")[2]]
    return next(iter([*exact, *around, *last]), key)


def _nearest(word: str, known: Sequence[str], cutoff: float = 0.5) -> str:
    """Return a hint with known words, equal but for case, same prefix or similar; "" if none."""
    lower = {each.lower(): each for each in known if each != word}
    plain = word.lower().replace("-", "_")
    if plain in lower:
        return f"; nearest: {lower[plain]}"
    begun = [each for each in lower if len(word) > 1 and each.startswith(plain)]
    close = get_close_matches(plain, lower, NEAR, cutoff=cutoff)
    found = list(dict.fromkeys([*begun, *close] if len(begun) <= NEAR else begun))
    more = ", ..." if len(found) > NEAR and len(begun) > NEAR else ""
    return f"; nearest: {', '.join(lower[each] for each in found[:NEAR])}{more}" if found else ""
