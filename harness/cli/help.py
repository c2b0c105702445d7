"""Text of `--help`: groups and keys of a run on one screen, or one of them in full.

Groups, keys and choices are described by the comments beside them in conf/.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from harness.config.search_path import CONF, choices, groups
from harness.config.typed import BadSetting

USAGE = """\
python -m harness [GROUP=CHOICE ...] [KEY=VALUE ...] [+experiment=NAME] [-m]

  --help NAME   choices of a group, keys of a section, or of a choice: GROUP=CHOICE
  --help constraints  which settings do not go together, and why
  COMMAND --help  of quickstart, advise, around, report, doctor or study
  --cfg job     what the command line composes, without running it
  -m            one run for each of several values: seed=0,1,2
"""
GROUP = re.compile(r" *(?:- (?P<name>\w+): (?P<choice>\w+) |)# (?:(?P<other>\w+): )?(?P<about>.*)")
KEY = re.compile(r"(\w+): *([^#\n]*?) *(?:# (.*))?")
DEFAULT = re.compile(r"(?: *- |defaults: \[)(?:override /)?(?:(\w+): )?(?!_self_)(\w+)")
NOT_OF_A_RUN = ("folder", "comparison", "seeds", "hydra")


class HelpEntry(NamedTuple):
    """One line of help: a name, its default value or "", and its description."""

    name: str
    value: str
    about: str


def shown(name: str | None) -> str:
    """Return the help on `name`, or on everything if None. Raise BadSetting for an unknown name."""
    return "\n".join(_all() if name is None else _one(name))


def of_groups() -> list[HelpEntry]:
    """Return an entry per group of a run, with its default choice as value."""
    found = filter(None, map(GROUP.fullmatch, _config()[0].splitlines()[1:]))
    return [HelpEntry(m["name"] or m["other"], m["choice"] or "", m["about"]) for m in found]


def of_keys() -> list[HelpEntry]:
    """Return the keys of a run outside of groups; a section is described by its keys."""
    return [line for line, _ in _blocks(_config()[1]) if line.name not in NOT_OF_A_RUN]


def of_sections() -> dict[str, list[HelpEntry]]:
    """Return the keys of each section of a run that is not a group."""
    found = [(line.name, inner) for line, inner in _blocks(_config()[1]) if inner]
    return {name: [line for line, _ in _blocks(inner)] for name, inner in found}


def of_choices(group: str) -> list[HelpEntry]:
    """Return the choices of a group with their descriptions."""
    return [HelpEntry(name, "", _about(file)) for name, file in choices(group).items()]


def _all() -> Iterator[str]:
    yield from (USAGE, "Groups", *_table(of_groups()), "", "Keys", *_table(of_keys()))


def _one(name: str) -> Iterator[str]:
    group, _, choice = name.partition("=")
    files = choices(group)
    sections = of_sections()
    keys = {line.name: line for line in of_keys()}
    keys |= {f"{name}.{line.name}": line for name in sections for line in sections[name]}
    if name == "constraints":
        from harness import constraints  # imports torch, so only on demand

        yield from constraints.reference()
    elif choice in files:
        yield files[choice].read_text().rstrip()
    elif choice:
        raise BadSetting(f"{group} has no choice {choice!r}; --help {group} lists those it has")
    elif files:
        yield from _table(of_choices(group))
        yield from _table(HelpEntry(each, "", "a group of its own") for each in groups(group))
    elif name in sections:
        yield from _table(sections[name])
    elif name in keys:
        yield from _table([keys[name]._replace(name=name)])
    else:
        near = get_close_matches(name, [*groups(), *keys, "constraints"], 1)
        more = "".join(f"; write --help {each}" for each in near)
        raise BadSetting(f"--help {name}: there is no such group or key; --help lists them{more}")


def _config() -> tuple[str, str]:
    """Return the text of conf/config.yaml in two parts: the groups, and the keys."""
    head, _, keys = (CONF / "config.yaml").read_text().partition("\n\n")
    return head, keys


def _blocks(text: str) -> Iterator[tuple[HelpEntry, str]]:
    """Yield each top-level key of `text`, and the lines indented below it, dedented."""
    for block in re.split(r"(?m)^(?=\w)", text):
        first, _, inner = block.partition("\n")
        if found := KEY.fullmatch(first):
            name, value, about = found.groups()
            inner = dedent(inner) if inner.startswith(" ") else ""
            names = ", ".join(line.name for line, _ in _blocks(inner))
            yield HelpEntry(name, value, "; ".join(filter(None, (about, names)))), inner


def _about(file: Path) -> str:
    """Return the comment at a yaml's head or beside its class; without one, its choices."""
    lines = [each for each in file.read_text().splitlines() if each != "# @package _global_"]
    head = next((each for each in lines if each.startswith(("# ", "_target_:"))), "")
    chosen = ("=".join(filter(None, each.groups())) for each in map(DEFAULT.match, lines) if each)
    said = head.partition("# ")[2].rpartition("    ")[
        2
    ]  # the text after the command, if there is one
    return said.strip() or " ".join(chosen)


def _table(lines: Iterable[HelpEntry]) -> Iterator[str]:
    rows = list(lines)
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    for name, value, about in rows:
        yield f"  {name:{widths[0]}}  {value:{widths[1]}}  {about}".rstrip()
