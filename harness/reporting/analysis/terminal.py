"""Terminal output of reports and plans: tables that fit the width, and lines about runs."""

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.table import Table
from rich.text import Text

from harness.records import printable
from harness.reporting.analysis.comparison import Comparison, differences
from harness.reporting.analysis.decision import sentences
from harness.reporting.analysis.grid import Grid

WIDTH = 100  # used if the output is no terminal
TITLE_WIDTH, TEXT_WIDTH = 8, 20  # longer ones are folded


def console(width: int = WIDTH) -> Console:
    """Return a console without markup; `width` applies if the output is no terminal.

    It removes control characters from all printed text, because names in foreign files could
    otherwise control the terminal.
    """
    found = Console(
        width=None if sys.stdout.isatty() else width,
        color_system=None if os.environ.get("NO_COLOR") else "auto",  # else bold text stays bold
        highlight=False,
        markup=False,
    )
    found.push_render_hook(_PrintableText())
    return found


class _PrintableText(RenderHook):
    """Console hook that replaces control characters in everything printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(one) for one in renderables]


class _Printable:
    """Wrapper that removes control characters from an object's text, but keeps rich's styles."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            is_text = not segment.control
            yield segment._replace(text=printable.lines(segment.text)) if is_text else segment


def table(grid: Grid) -> Table:
    """Return `grid` as a rich table without its wide columns; small text goes on its own line."""
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    places = [at for at, head in enumerate(grid.columns) if not head.wide]
    for at in places:
        head, longest = grid.columns[at], max((len(row[at].text) for row in grid.rows), default=0)
        if head.number:
            shown.add_column(_folded(head.title), justify="right")
        else:
            shown.add_column(head.title, overflow="fold", min_width=min(TEXT_WIDTH, longest))
    for row in grid.rows:
        cells = [filter(None, (row[at].text, row[at].small)) for at in places]
        shown.add_row(*(Text("\n".join(each)) for each in cells))
    return shown


def decision(compared: Comparison, others: list[Comparison]) -> list[str]:
    """Return the sentences of a decision; they name the setting if `others` has several."""
    first, *rest = sentences(compared.decision)
    if len(others) == 1:
        return [first, *rest]
    experiment = compared.runs.experiment.iloc[0]
    beside = [each for each in others if each.runs.experiment.iloc[0] == experiment]
    setting = ", ".join([str(experiment), *differences(compared, beside)])
    return [f"{setting}: {first}", *(f"  {line}" for line in rest)]


def _folded(title: str) -> str:
    apart = re.sub(r"(?<=\S)/(?=\S)", " /", title)
    return "\n".join(textwrap.wrap(apart, TITLE_WIDTH, break_long_words=False))


def plan_in_all(rows: Sequence[tuple[str, int, Any]]) -> str:
    """Return a sentence with the total time of all runs of a plan, one after the other."""
    real = [runs * found.real_s for _, runs, found in rows if found.real_s is not None]
    emulated = sum(runs * found.time_s for _, runs, found in rows)
    count = sum(runs for _, runs, _ in rows)
    said = f"{count} run{'s' * (count > 1)}, {_lasting(emulated)} emulated in all"
    if real:
        said += f"; {_lasting(sum(real))} of this machine, and what starting and evaluating takes"
    return f"{said}. Predicted: nothing was run."


def _lasting(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def left_out(runs: pd.DataFrame) -> list[str]:
    """Return lines that name every run that does not count, with the reasons.

    `runs` are all rows of `load.runs`. Each reason of an invalid run has its own lines.
    """
    absent = runs[runs.left_out != ""]
    if absent.empty:
        return []
    lines = [f"{len(absent)} of {len(runs)} runs are left out of averages and figures:"]
    for reason, group in absent.groupby("left_out"):
        rows: Any = group.itertuples()
        names = ", ".join(map(_run, rows))
        reasons = group.reasons.iloc[0].split("\n") if group.state.iloc[0] == "invalid" else []
        lines.append(f"  {'invalid' if reasons else str(reason)}: {names}")
        for each in reasons:
            fill = textwrap.TextWrapper(WIDTH, initial_indent="    - ", subsequent_indent="      ")
            lines += fill.wrap(each)
    return lines


def _run(row: Any) -> str:
    """Format a run: its method and seed, if known, and its folder."""
    method = [str(row.method)] if pd.notna(row.method) else []
    seed = [f"seed {row.seed:g}"] if pd.notna(row.seed) else []
    return " ".join([*method, *seed, f"({row.run_id})"])
