"""Predicts the papers' timing cells from testbeds: `python -m harness.fidelity [--cells FILE.csv]`.

Inputs are constants of the testbed.yaml of each study, and no other: see there which published
cells they were read from. What was predicted of those does not count. A FILE of rows that others
measured, with the columns of papers/hardware/rows.csv, is predicted alone, on testbeds of its own.
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
from harness.fidelity.row_report import assess_rows, show_rows, told_rows
from harness.fidelity.rows import has_rows, read_rows
from harness.fidelity.timing import Timing, timings
from harness.records.outputs import CannotWrite, OutputFolder, csv_text
from harness.reporting.analysis import terminal
from harness.reporting.figures import fidelity as figure
from harness.reporting.figures.theme import save

WIDTH = 200  # where the output is no terminal


def main() -> int:
    """0, or 2 for a CSV that cannot be read."""
    known = timings()
    parser = argparse.ArgumentParser(prog="python -m harness.fidelity", description=__doc__)
    parser.add_argument("--cells", type=Path, help="CSV of further cells, with the same columns")
    parser.add_argument("--paper", choices=tuple(known), help="only this paper's cells")
    parser.add_argument("--out", type=Path, help="folder for fidelity.csv and fidelity.svg")
    parser.add_argument(
        "--leave-one-out", action="store_true", help="every model from the others of its testbed"
    )
    told = parser.parse_args()
    if told.cells and has_rows(told.cells):
        return of_rows(told.cells, told.out)
    chosen = [known[told.paper]] if told.paper else list(known.values())
    try:
        cells = [cell for each in chosen for cell in each.cells()]
        further = read(told.cells, tuple(known)) if told.cells else []
        if told.out:
            OutputFolder(told.out).make()
    except (BadCell, CannotWrite) as error:
        print(error, file=sys.stderr)
        return 2
    if told.leave_one_out:
        models = (
            m for t in chosen for m in leave_one_out(t, [c for c in cells if c.paper == t.paper])
        )
        show_left_out(_console(), models)
        return 0
    papers = [each.paper for each in chosen]
    report(chosen, cells, [cell for cell in further if cell.paper in papers], told.out)
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
    show_rows(_console(), known, found)
    return 0


def _console() -> Console:
    return terminal.console(WIDTH)


def report(chosen: list[Timing], cells: list[Cell], further: list[Cell], out: Path | None) -> None:
    """Print everything; with `out`, write the cells and their figure there."""
    console = _console()
    found = assess(cells, further)
    for each in chosen:
        show.testbed(console, each.testbed)
    for each in chosen:
        show.cells(console, each.paper, [row for row in found if row.cell.paper == each.paper])
    show.claims(console, [claim for each in chosen for claim in each.claims()])
    show.distances(console, found)
    show.orders(console, orders(found))
    if out:
        folder, drawn = OutputFolder(out), {each.paper: each.title for each in chosen}
        print(folder.write("fidelity.csv", csv_text(frame(found))))
        print(*save(figure.scatter(frame(found), drawn), folder, "fidelity"))
    if further:
        print(show.pooled("further cells", distance([r for r in found if r.further], True)))
    known = [row for row in found if not row.further]
    print(show.pooled("all predictions, also those left out,", distance(known, False)))
    print(show.pooled("percentages of change as printed,", distance(known, True, printed=True)))
    print(show.pooled("pooled", distance(known, True)))


if __name__ == "__main__":
    sys.exit(main())
