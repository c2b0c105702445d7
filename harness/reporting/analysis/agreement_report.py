"""Prints and writes the comparison of virtual time with real packets in a report."""

import pandas as pd
from rich.console import Console

from harness.records.outputs import OutputFolder, csv_text
from harness.reporting.analysis import agreement, tables, terminal
from harness.reporting.figures import theme
from harness.reporting.figures.agreement import agreement as agreement_figure


def show(console: Console, pairs: pd.DataFrame, out: OutputFolder, pdf: bool) -> None:
    """Print `agreement.Pair` rows, if any, and write their csv and figure to `out`.

    The figure is written as SVG, and with `pdf` also as PDF.
    """
    if pairs.empty:
        return
    found = list(pairs.groupby("virtual", sort=False))
    for name, rows in found:
        title = "virtual time against real packets" + f", network {name}" * (len(found) > 1)
        console.print(f"\n{title}", markup=False, style="bold")
        console.print(terminal.table(tables.agreement(rows)))
        for columns in (("method",), ("condition", "workers")):
            console.print(terminal.table(tables.errors(agreement.by(rows, *columns))))
        console.print(terminal.table(tables.errors(agreement.by(rows.assign(runs="all"), "runs"))))
        if len(ordered := agreement.orders(rows)):
            console.print(terminal.table(tables.orders(ordered)))
        console.print("  step: mean of all, emulated; error: virtual over real, less 1")
        file = "agreement" + f"_{name}" * (len(found) > 1)
        table = out.write(f"{file}.csv", csv_text(rows))
        for path in [table, *theme.save(agreement_figure(rows, title), out, file, pdf)]:
            console.print(str(path), markup=False, soft_wrap=True)
