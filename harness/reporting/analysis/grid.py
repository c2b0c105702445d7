"""Tables as cells with a text and a sort key, independent of how a terminal or page shows them."""

from typing import Any, NamedTuple

import pandas as pd


class TableCell(NamedTuple):
    """A table cell: text, smaller text beside it, and the key that it is sorted by."""

    text: str
    small: str = ""
    order: float | str = ""  # numbers sort before words, "" last
    mark: str = ""  # good | bad


class ColumnHead(NamedTuple):
    """Title and properties of a column."""

    title: str
    number: bool
    hint: str = ""  # explains a title that is not enough
    wide: bool = False  # shown only where there is room


class Grid(NamedTuple):
    """Columns and rows of cells."""

    columns: list[ColumnHead]
    rows: list[list[TableCell]]


def word(text: Any, mark: str = "") -> TableCell:
    """Return a cell of text; empty for None and NaN."""
    said = "" if text is None or (isinstance(text, float) and pd.isna(text)) else str(text)
    return TableCell(said, "", said.lower(), mark)


def number(value: Any, digits: int = 3, small: str = "", before: str = "") -> TableCell:
    """Return a cell of a number with `digits` significant digits after the text `before`.

    `small` is smaller text beside it. None and NaN become a dash.
    """
    order = "" if value is None or pd.isna(value) else float(value)
    return TableCell(before + figure(value, digits), small, order)


def figure(value: Any, digits: int = 3) -> str:
    """Format `value` with `digits` significant digits, or as an integer if larger; NaN: a dash."""
    if value is None or pd.isna(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
