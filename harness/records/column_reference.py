"""Generator of docs/columns.md from the classes that declare the columns."""

from collections.abc import Mapping
from typing import get_type_hints

from controllers.base import Column, Observation
from harness.records import columns
from harness.records.run_directory import ALL_TABLES

HEAD = """# Columns

Written by `python -m harness.records.column_reference > docs/columns.md` from the classes that
declare them: a line of a class is all that a column needs beside the code that measures it. A
controller observes all that `controllers.base` declares.
"""


def reference() -> str:
    """Return docs/columns.md: each column of each csv, and what a controller observes."""
    parts = [HEAD, *(_section(name, row) for name, row in ALL_TABLES.items())]
    hidden = {
        name: column for name, column in columns.of(Observation).items() if not column.recorded
    }
    parts.append("## Observed, and not recorded\n\n" + _rows(Observation, hidden))
    return "\n".join(parts)


def _section(name: str, row: type) -> str:
    kept = {name: column for name, column in columns.of(row).items() if column.recorded}
    return f"## {name}\n\n{(row.__doc__ or '').splitlines()[0]}\n\n{_rows(row, kept)}"


def _rows(row: type, shown: Mapping[str, Column]) -> str:
    types = get_type_hints(row)
    lines = ["| column | type | unit | what it is | declared in |", "|---|---|---|---|---|"]
    for name, column in shown.items():
        told = column.told.replace("|", "\\|")
        kind, owner = types[name].__name__, _declared(row, name)
        cells = (f"`{name}`", kind, columns.unit(name), told, f"`{owner}`")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _declared(row: type, name: str) -> str:
    owner = next(kind for kind in row.__mro__ if name in kind.__dict__.get("__annotations__", {}))
    return f"{owner.__module__}.{owner.__name__}"


if __name__ == "__main__":
    print(reference(), end="")
