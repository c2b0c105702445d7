"""Safe YAML reader: mappings, lists, strings and numbers only. It reads all files of others.

A short YAML can expand to more values than fit in memory (aliases of aliases), or nest deeper than
the stack. Both are refused before any value is built.
"""

import os
import stat
from pathlib import Path
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is ten times as fast
MOST_BYTES = 1 << 20  # ours have about 4 KiB
MOST_DEPTH = 32  # of nested collections; ours have 6
MOST_COPIED = 10_000  # values of a file after its aliases are expanded


class Refused(yaml.YAMLError):
    """Error for a text that this reader refuses, whether or not it is valid YAML."""


def from_file(path: Path | str, aliases: bool = True) -> Any:
    """Return the values in the YAML file `path`, checked as by `read`.

    Raise Refused for a pipe, a device or a file larger than MOST_BYTES, OSError if it is missing.
    """
    return read(text_of(path), aliases)


def text_of(path: Path | str) -> str:
    """Return the text of `path`. Raise Refused unless it is a file of at most MOST_BYTES."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused("it is a pipe or a device, and no file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise Refused(f"it has more than {MOST_BYTES} bytes")
    return content.decode()


def read(text: str, aliases: bool = True) -> Any:
    """Return the values in `text`; raise yaml.YAMLError if it is not YAML, Refused as `check`."""
    check(text, aliases)
    return yaml.load(text, LOADER)


def check(text: str, aliases: bool = True) -> None:
    """Raise Refused if `text` nests too deep, or if its aliases expand to too many values.

    Without `aliases` any alias is refused.
    """
    values, copied = [0], False  # values of each open collection, the document first
    anchors: list[str | None] = []  # anchor of each open collection
    sizes: dict[str, int] = {}  # values that an alias expands to, by anchor
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise Refused("it has aliases, which no run writes")
            copied = True
            values[-1] += sizes.get(
                event.anchor or "", MOST_COPIED
            )  # unknown anchor: it contains itself
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
