"""Predict the papers' timing cells from testbeds: `python -m harness.fidelity [--cells FILE.csv]`.

Inputs are the constants of the testbed.yaml of each study, and nothing else. The file says which
published cells the constants were read from; predictions of those do not count. If FILE has the
columns of papers/hardware/rows.csv, only its rows are predicted, on testbeds of their own.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from harness.fidelity import show
from harness.fidelity.assess import assess, distance, frame, orders
from harness.fidelity.bench import benches
from harness.fidelity.cells import BadCell, Cell, read
from harness.fidelity.left_out import leave_one_out, show_left_out
from harness.fidelity.predictor import Predictor, predictors
from harness.fidelity.row_report import assess_rows, show_rows, told_rows
from harness.fidelity.rows import has_rows, read_rows
from harness.records.outputs import CannotWrite, OutputFolder, csv_text
from harness.reporting.analysis import terminal
from harness.reporting.figures import fidelity as figure
from harness.reporting.figures.theme import save

WIDTH = 200  # columns if the output is no terminal


def main() -> int:
    """Print the comparison; return 0, or 2 for a CSV that cannot be read."""
    known = predictors()
    parser = argparse.ArgumentParser(prog="python -m harness.fidelity", description=__doc__)
    parser.add_argument("--cells", type=Path, help="CSV of further cells, with the same columns")
    parser.add_argument("--paper", choices=tuple(known), help="only this paper's cells")
    parser.add_argument("--out", type=Path, help="folder for fidelity.csv and fidelity.svg")
    parser.add_argument(
        "--leave-one-out", action="store_true", help="every model from the others of its testbed"
    )
    wanted = parser.parse_args()
    if wanted.cells and has_rows(wanted.cells):
        return of_rows(wanted.cells, wanted.out)
    chosen = [known[wanted.paper]] if wanted.paper else list(known.values())
    try:
        cells = {kind.paper: kind.published() for kind in chosen}
        further = read(wanted.cells, tuple(known)) if wanted.cells else []
        if wanted.out:
            OutputFolder(wanted.out).make()
    except (BadCell, CannotWrite) as error:
        print(error, file=sys.stderr)
        return 2
    if wanted.leave_one_out:
        models = (
            model
            for kind in chosen
            for model in leave_one_out(kind, kind.own_testbed(), cells[kind.paper])
        )
        show_left_out(terminal.console(WIDTH), models)
        return 0
    further = [cell for cell in further if cell.paper in cells]
    report(chosen, [cell for own in cells.values() for cell in own], further, wanted.out)
    return 0


def of_rows(path: Path, out: Path | None) -> int:
    """Print rows that others measured beside predictions; 2 for a file that cannot be read."""
    try:
        known = benches()
        found = assess_rows(read_rows(path), known)
        if out:
            OutputFolder(out).write("rows.csv", csv_text(told_rows(found)))
    except (BadCell, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    show_rows(terminal.console(WIDTH), known, found)
    return 0


def report(
    chosen: list[type[Predictor]], cells: list[Cell], further: list[Cell], out: Path | None
) -> None:
    """Print testbeds, cells, distances and orders; with `out`, write the cells and a figure."""
    console: Console = terminal.console(WIDTH)
    rows = assess(cells, further)
    for kind in chosen:
        show.testbed(console, kind.own_testbed())
    for kind in chosen:
        show.cells(console, kind.paper, [row for row in rows if row.cell.paper == kind.paper])
    show.distances(console, rows)
    show.orders(console, orders(rows))
    if out:
        folder, titles = OutputFolder(out), {kind.paper: kind.title for kind in chosen}
        print(folder.write("fidelity.csv", csv_text(frame(rows))))
        print(*save(figure.scatter(frame(rows), titles), folder, "fidelity"))
    if further:
        print(show.pooled("further cells", distance([r for r in rows if r.further], True)))
    own = [row for row in rows if not row.further]
    print(show.pooled("all predictions, also those left out,", distance(own, False)))
    print(show.pooled("percentages of change as printed,", distance(own, True, printed=True)))
    print(show.pooled("pooled", distance(own, True)))


if __name__ == "__main__":
    sys.exit(main())
