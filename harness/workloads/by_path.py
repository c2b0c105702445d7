"""What a dotted path names, called with the arguments that it takes."""

import inspect
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any


def check(path: str, arguments: Mapping[str, Any]) -> None:
    """ValueError for an argument that what `path` names does not take."""
    known = inspect.signature(resolve_name(path)).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    for name in arguments:
        if name not in known:
            raise ValueError(f"{path} takes no {name!r}; it takes {', '.join(known) or 'nothing'}")


def called(path: str, arguments: Mapping[str, Any], offered: Mapping[str, Any]) -> Any:
    """Result of what `path` names for `arguments`, and those `offered` that it takes by name."""
    function = resolve_name(path)
    taken = inspect.signature(function).parameters
    more = {key: value for key, value in offered.items() if key in taken}
    return function(**(more | dict(arguments)))


def last(path: str) -> str:
    """Name of what a dotted path leads to, without the modules that it is in."""
    return path.rpartition(".")[2]
