"""Calls of functions and classes named by a dotted path."""

import inspect
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any


def check(path: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for an argument that `path` does not accept."""
    known = inspect.signature(resolve_name(path)).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    for name in arguments:
        if name not in known:
            raise ValueError(f"{path} takes no {name!r}; it takes {', '.join(known) or 'nothing'}")


def called(path: str, arguments: Mapping[str, Any], offered: Mapping[str, Any]) -> Any:
    """Call `path` with `arguments`, and with those of `offered` that it accepts by name."""
    function = resolve_name(path)
    taken = inspect.signature(function).parameters
    more = {key: value for key, value in offered.items() if key in taken}
    return function(**(more | dict(arguments)))


def last(path: str) -> str:
    """Return the last name of a dotted path, without its modules."""
    return path.rpartition(".")[2]
