"""A table of a page: cells that say one thing and are ordered by another."""

from typing import Any, NamedTuple

import pandas as pd


class Cell(NamedTuple):
    """What is written, what is written small beside it, and by what it is ordered."""

    text: str
    small: str = ""
    order: float | str = ""  # a number before words; "" is last
    mark: str = ""  # good | bad


class Column(NamedTuple):
    title: str
    number: bool = False
    hint: str = ""  # what it means, where the title does not say


class Grid(NamedTuple):
    """Columns and rows of cells."""

    columns: list[Column]
    rows: list[list[Cell]]


def word(text: Any, mark: str = "") -> Cell:
    """A cell of text; nothing for None and nan."""
    said = "" if text is None or (isinstance(text, float) and pd.isna(text)) else str(text)
    return Cell(said, "", said.lower(), mark)


def number(value: Any, digits: int = 3, small: str = "", mark: str = "") -> Cell:
    """A cell of a number with `digits` significant ones; a dash for None and nan."""
    if value is None or pd.isna(value):
        return Cell("–", small, "", mark)
    return Cell(figure(value, digits), small, float(value), mark)


def figure(value: float, digits: int = 3) -> str:
    """`value` in `digits` significant digits, or whole."""
    if pd.isna(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
