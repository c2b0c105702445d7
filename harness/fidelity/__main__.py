"""Predict published measurements from testbeds: `study fidelity [--cells FILE.csv]`.

The only inputs are the constants in each study's testbed.yaml. That file also lists the published
cells from which the constants were read; predictions of these cells do not count. If FILE has the
columns of papers/hardware/rows.csv, only its rows are predicted, each on its own testbed.
"""

import argparse
import sys
from pathlib import Path

from harness.fidelity import report
from harness.fidelity.assess import Assessed, assess, assess_rows, distance, frame, orders
from harness.fidelity.bench import bench_files, load_bench
from harness.fidelity.left_out import leave_one_out, show_left_out
from harness.fidelity.measurement import BadMeasurement, read
from harness.fidelity.predictor import predictors
from harness.records.outputs import CannotWrite, OutputFolder, csv_text
from harness.reporting.analysis import terminal
from harness.reporting.figures import fidelity as figure
from harness.reporting.figures.theme import save

WIDTH = 200  # columns if the output is no terminal


def main() -> int:
    """Print the comparison; return 0, or 2 if a CSV cannot be read or the output not written."""
    known = predictors()
    parser = argparse.ArgumentParser(prog="python -m harness study fidelity", description=__doc__)
    parser.add_argument("--cells", type=Path, help="CSV of further cells, with the same columns")
    parser.add_argument("--paper", choices=tuple(known), help="only this paper's cells")
    parser.add_argument("--out", type=Path, help="folder for fidelity.csv and fidelity.svg")
    parser.add_argument(
        "--leave-one-out", action="store_true", help="every model from the others of its testbed"
    )
    wanted = parser.parse_args()
    chosen = [known[wanted.paper]] if wanted.paper else list(known.values())
    titles = {kind.paper: kind.title for kind in chosen}
    console = terminal.console(WIDTH)
    try:
        further = read(wanted.cells, tuple(known)) if wanted.cells else []
        if any(row.operation for row in further):
            benches = list(map(load_bench, bench_files()))
            rows = assess_rows(further, benches)
            report.benchmark(console, benches, rows)
            if wanted.out:
                OutputFolder(wanted.out).write("fidelity.csv", csv_text(frame(rows)))
            return 0
        cells = {kind.paper: kind.published() for kind in chosen}
        if wanted.out:
            OutputFolder(wanted.out).make()
    except (BadMeasurement, CannotWrite) as error:
        print(error, file=sys.stderr)
        return 2
    if wanted.leave_one_out:
        models = (
            model
            for kind in chosen
            for model in leave_one_out(kind, kind.own_bench(), cells[kind.paper])
        )
        show_left_out(console, models)
        return 0
    further = [cell for cell in further if cell.paper in cells]
    rows = assess([cell for own in cells.values() for cell in own], further)
    for kind in chosen:
        report.constants(console, kind.own_bench())
    for paper in cells:
        report.cells(console, paper, [row for row in rows if row.cell.paper == paper])
    report.distances(console, rows)
    report.orders(console, orders(rows))
    if wanted.out:
        folder = OutputFolder(wanted.out)
        print(folder.write("fidelity.csv", csv_text(frame(rows))))
        print(*save(figure.scatter(frame(rows), titles), folder, "fidelity"))
    for line in _summary(rows):
        print(line)
    return 0


def _summary(rows: list[Assessed]) -> list[str]:
    """Return one line per pooled distance; the last one covers the papers' own cells that count."""
    further, own = ([r for r in rows if r.further == known] for known in (True, False))
    lines = [report.pooled("further cells", distance(further, True))] if further else []
    return [
        *lines,
        report.pooled("all predictions, also those left out,", distance(own, False)),
        report.pooled("percentages of change as printed,", distance(own, True, printed=True)),
        report.pooled("pooled", distance(own, True)),
    ]


if __name__ == "__main__":
    sys.exit(main())
