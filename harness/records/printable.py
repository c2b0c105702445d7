"""Text of others as a terminal, a log or a page may show it: without what controls a terminal."""

import re
from typing import Any

# Control characters and escape sequences, invisible marks, reversed writing, halves of characters.
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def lines(text: str) -> str:
    """Return `text` of one or several lines, each control character as a ?."""
    return CONTROL.sub("?", text)


def line(text: str) -> str:
    """Return `text` as one line, each control character as a ?, ends of lines among them."""
    return lines(text).replace("\n", "?")


def values(content: Any) -> Any:
    """Return nested mappings and lists with every text in them, keys too, as `lines` has it."""
    if isinstance(content, str):
        return lines(content)
    if isinstance(content, dict):
        return {values(key): values(value) for key, value in content.items()}
    return [values(value) for value in content] if isinstance(content, list) else content


class PrintableError(Exception):
    """Error whose text has no control characters, since it may contain names from other users."""

    def __str__(self) -> str:
        return lines(super().__str__())
