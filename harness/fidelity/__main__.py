"""Predicts the papers' timing cells from testbeds: `python -m harness.fidelity [--cells FILE.csv]`.

Inputs are constants of the testbeds in `testbeds/*.yaml`, one set each, and no other: see there
which published cells they were read from. What was predicted of those does not count.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from harness.fidelity import show
from harness.fidelity.assess import PREDICTORS, assess, distance, frame, orders
from harness.fidelity.cells import BadCell, Cell, read
from harness.fidelity.claims.every import claims
from harness.fidelity.testbed import load
from harness.figures import fidelity as figure
from harness.figures.look import save

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
WIDTH = 200  # where the output is no terminal


def main() -> int:
    """0, or 2 for a CSV that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m harness.fidelity", description=__doc__)
    parser.add_argument("--cells", type=Path, help="CSV of further cells, with the same columns")
    parser.add_argument("--paper", choices=tuple(PREDICTORS), help="only this paper's cells")
    parser.add_argument("--out", type=Path, help="folder for fidelity.csv, fidelity.png and .pdf")
    parser.add_argument("--published", type=Path, default=PUBLISHED, help="folder of the tables")
    told = parser.parse_args()
    papers = [told.paper] if told.paper else list(PREDICTORS)
    try:
        cells = [cell for paper in papers for cell in read(told.published / f"{paper}.csv")]
        further = [c for c in read(told.cells) if c.paper in papers] if told.cells else []
    except BadCell as error:
        print(error, file=sys.stderr)
        return 2
    report(papers, cells, further, told.out)
    return 0


def report(papers: list[str], cells: list[Cell], further: list[Cell], out: Path | None) -> None:
    """Print everything; with `out`, write the cells and their figure there."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    found = assess(cells, further)
    for paper in papers:
        show.testbed(console, load(PREDICTORS[paper][0]))
    for paper in papers:
        show.cells(console, paper, [row for row in found if row.cell.paper == paper])
    show.claims(console, claims(papers))
    show.distances(console, found)
    show.orders(console, orders(found))
    if out:
        out.mkdir(parents=True, exist_ok=True)
        frame(found).to_csv(out / "fidelity.csv", index=False)
        for path in [out / "fidelity.csv", *save(figure.scatter(frame(found)), out / "fidelity")]:
            print(path)
    if further:
        print(show.pooled("further cells", distance([r for r in found if r.further], True)))
    print(show.pooled("all predictions, also those left out,", distance(found, False)))
    print(show.pooled("percentages of change as printed,", distance(found, True, printed=True)))
    print(show.pooled("pooled", distance(found, True)))


if __name__ == "__main__":
    sys.exit(main())
