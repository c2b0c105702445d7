"""A table as it is read: cells that say one thing and are ordered by another, whatever shows it."""

from typing import Any, NamedTuple

import pandas as pd


class TableCell(NamedTuple):
    """A table cell: text, smaller text beside it, and the key that it is sorted by."""

    text: str
    small: str = ""
    order: float | str = ""  # a number before words; "" is last
    mark: str = ""  # good | bad


class ColumnHead(NamedTuple):
    """The head of a column."""

    title: str
    number: bool
    hint: str = ""  # what it means, where the title does not say
    wide: bool = False  # shown only where there is room


class Grid(NamedTuple):
    """Columns and rows of cells."""

    columns: list[ColumnHead]
    rows: list[list[TableCell]]


def word(text: Any, mark: str = "") -> TableCell:
    """A cell of text; nothing for None and nan."""
    said = "" if text is None or (isinstance(text, float) and pd.isna(text)) else str(text)
    return TableCell(said, "", said.lower(), mark)


def number(value: Any, digits: int = 3, small: str = "", before: str = "") -> TableCell:
    """A cell of a number with `digits` significant ones, `before` it; a dash for None and nan."""
    order = "" if value is None or pd.isna(value) else float(value)
    return TableCell(before + figure(value, digits), small, order)


def figure(value: Any, digits: int = 3) -> str:
    """`value` in `digits` significant digits, or whole."""
    if value is None or pd.isna(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
