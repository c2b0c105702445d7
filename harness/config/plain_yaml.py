"""YAML as plain values: mappings, lists, words and numbers; the only reader of files of others.

A short YAML can stand for values that no memory holds, by aliases of aliases, or be nested deeper
than a stack is. Both are refused before any value is made.
"""

import os
import stat
from pathlib import Path
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is there
MOST_BYTES = 1 << 20  # files of ours have 4 KiB
MOST_DEPTH = 32  # of nested collections; ours have 6
MOST_COPIED = 10_000  # values of a file with aliases, each of which stands for a copy


class Refused(yaml.YAMLError):
    """A text that is not read, whether or not it is YAML."""


def from_file(path: Path | str, aliases: bool = True) -> Any:
    """Return the values in the YAML file `path`, as `read` does.

    Raise Refused for a pipe, a device or a file of more than MOST_BYTES, and what opening raises.
    """
    return read(text_of(path), aliases)


def text_of(path: Path | str) -> str:
    """Return the text of the file `path`; Refused for one that no YAML of ours is like."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused("it is a pipe or a device, and no file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Refused(f"it has more than {MOST_BYTES} bytes")
    return content.decode()


def read(text: str, aliases: bool = True) -> Any:
    """Return the values of a YAML `text`; yaml.YAMLError if it is none, Refused as `check` does."""
    check(text, aliases)
    return yaml.load(text, LOADER)


def check(text: str, aliases: bool = True) -> None:
    """Raise Refused if the values of `text` are nested too deep, or are too many by its aliases.

    Without `aliases` any alias is refused.
    """
    values, copied = [0], False  # of each open collection, the text itself first
    anchors: list[str | None] = []  # of each open collection inside
    sizes: dict[str, int] = {}  # values that an alias of that name stands for
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise Refused("it has aliases, which no run writes")
            copied = True
            values[-1] += sizes.get(event.anchor or "", MOST_COPIED)  # unknown: it is in itself
        elif isinstance(event, yaml.ScalarEvent):
            values[-1] += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            values.append(1)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            inside, anchor = values.pop(), anchors.pop()
            values[-1] += inside
            if anchor:
                sizes[anchor] = inside
        if len(values) > 1 + MOST_DEPTH:
            raise Refused(f"its values are nested more than {MOST_DEPTH} deep")
        if copied and sum(values) > MOST_COPIED:
            raise Refused(f"its aliases stand for more than {MOST_COPIED} values")
