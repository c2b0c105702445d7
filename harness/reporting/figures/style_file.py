"""Style files of `python -m harness.report --style FILE`: how figures look in a paper.

A style file is a small YAML. Every key may be left out:

    names: {topk_0.01: "Top-k (1 %)"}  # labels, by method name
    colours: {topk_0.01: "#D55E00"}    # matplotlib colours
    order: [allreduce, topk_0.01]      # of methods in legends and panels; the others follow
    width: 3.4                         # inches, of a figure that spans the page
    title: off                         # no title above figures
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.colors import is_color_like

from harness.config import search_path
from harness.config.settings import BadSetting
from harness.config.typed import require

KEYS = ("names", "colours", "order", "width", "title")
WIDTHS_IN = (2.0, 20.0)


@dataclass(frozen=True)
class ReportStyle:
    """Contents of a style file; the defaults are those of a report without a style file."""

    names: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)
    order: Sequence[str] = ()  # names of methods
    width_in: float | None = None
    title: bool = True


def read(file: Path) -> ReportStyle:
    """Read a style file; raise BadSetting, in one line, if it is missing or has a bad value."""
    try:
        told = search_path.values(file) or {}
    except OSError as error:
        raise BadSetting(f"--style {file}: {error.strerror}") from error
    where = f"--style {file}:"
    require(isinstance(told, dict), where, told, f"keys of {', '.join(KEYS)}, with their values")
    if unknown := [key for key in told if key not in KEYS]:
        raise BadSetting(f"{where} keys must be of {', '.join(KEYS)}, got {unknown[0]!r}")
    names, colours = (_texts(f"{where} {key}", told.get(key) or {}) for key in KEYS[:2])
    for method, colour in colours.items():
        known = "a colour such as '#0072B2' or black"
        require(is_color_like(colour), f"{where} colours.{method}", colour, known)
    order = told.get("order", [])
    is_order = isinstance(order, list) and all(isinstance(one, str) for one in order)
    require(is_order, f"{where} order", order, "names of methods, such as [allreduce, topk_0.01]")
    width, title = told.get("width"), told.get("title", True)
    low, high = WIDTHS_IN
    is_width = width is None or (isinstance(width, int | float) and low <= width <= high)
    require(is_width, f"{where} width", width, f"in [{low:g}, {high:g}] inches")
    require(isinstance(title, bool), f"{where} title", title, "on or off")
    return ReportStyle(names, colours, tuple(order), width, title)


def _texts(where: str, told: Any) -> dict[str, str]:
    known = isinstance(told, dict) and all(isinstance(v, str) for v in [*told, *told.values()])
    require(known, where, told, "texts by the names of methods")
    return dict(told)
