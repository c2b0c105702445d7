"""Print the tables of `python -m harness.fidelity`: constants, cells, distances, orders."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from harness.fidelity.assess import CHANGES, Assessed, Distance, distance
from harness.fidelity.testbed import Testbed

UNITS = {
    "bucket_us": "us a bucket",
    "matrix_us": "us a matrix",
    "column_us": "us a column",
    "element_ns": "ns an element",
    "rank_ns": "ns an element and rank",
}
DIGITS = 4  # significant, of a figure
MODEL_WIDTH, METHOD_WIDTH = 22, 34  # longer ones are folded


def number(value: float | None) -> str:
    """Empty without one; 0.0123, 1.234, 12.34, 123.4, 12345."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 10**DIGITS else f"{value:.{DIGITS}g}"


def testbed(console: Console, bed: Testbed) -> None:
    """Print a testbed's constants, each with its source."""
    table = _table(bed.title, "constant", "value", "unit", "read from")
    for name, told in bed.constants.items():
        table.add_row(name, number(told.value), told.unit, told.source)
    for name, cost in bed.costs.items():
        for key, value in bed.cost(name):
            table.add_row(f"compression, {name}", number(value), UNITS[key], cost["source"])
    for (model, run), each in bed.computes.items():
        name = f"compute, {model}{', ' + run if run else ''}"
        told_s = f"{number(each.forward_s)} + {number(each.backward_s)}"
        table.add_row(name, told_s, "s, forward + backward", bed.sources[model, run])
    console.print(table, markup=False)


def cells(console: Console, paper: str, found: Sequence[Assessed]) -> None:
    """Cell by cell; the reasons of those that do not count below, by number."""
    table = _table(
        f"{paper}: cells", "id", "model", "network", "workers", "method", "metric", "unit",
        "published", "predicted", "error (%)", "counts",
    )  # fmt: skip
    reasons: list[str] = []
    for row in found:
        cell = row.cell
        table.add_row(
            cell.id, cell.model, cell.network, cell.workers, cell.method, cell.metric, cell.unit,
            cell.text, number(row.predicted), _percent(row), _standing(row, reasons),
        )  # fmt: skip
    console.print(table, markup=False)
    if any(row.cell.metric in CHANGES for row in found):
        console.print("  [*] of the factor: 10 % longer is 1.10 times as long", markup=False)
    for place, why in enumerate(reasons, 1):
        console.print(f"  [{place}] {why}", markup=False, soft_wrap=True)


def distances(console: Console, found: Sequence[Assessed]) -> None:
    """Absolute errors by table of a paper: of what counts, and of all predictions."""
    table = _table(
        "absolute errors (%), by table", "table", "count", "median", "p90", "all", "median", "p90"
    )
    for name in dict.fromkeys(row.cell.id for row in found):
        rows = [row for row in found if row.cell.id == name]
        both = [distance(rows, counting) for counting in (True, False)]
        if both[1].cells:
            table.add_row(name, *(text for each in both for text in _distance(each)))
    console.print(table, markup=False)


def orders(console: Console, found: dict[tuple[str, str], float]) -> None:
    """Print how far each model's methods come in the published order."""
    title = "order of a model's cells (Spearman), also of those left out"
    table = _table(title, "table", "model", "rho")
    for (name, model), rho in found.items():
        table.add_row(name, model, f"{rho:.2f}")
    console.print(table, markup=False)


def pooled(what: str, found: Distance) -> str:
    """The line of a pooled distance."""
    return f"{what} median {found.median:.1f} % p90 {found.p90:.1f} % over {found.cells} cells"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    right = ("value", "published", "predicted", "error (%)", "count", "all", "median", "p90", "rho")
    widths = {"model": MODEL_WIDTH, "method": METHOD_WIDTH}
    for name in columns:
        justify = "right" if name in right else "left"
        table.add_column(name, justify=justify, overflow="fold", max_width=widths.get(name))  # type: ignore[arg-type]
    return table


def _percent(row: Assessed) -> str:
    mark = "*" if row.cell.metric in CHANGES else ""
    return "" if row.error is None else f"{mark}{100 * row.error:+.1f}"


def _distance(found: Distance) -> list[str]:
    if not found.cells:
        return ["0", "", ""]
    return [str(found.cells), f"{found.median:.1f}", f"{found.p90:.1f}"]


def _standing(row: Assessed, reasons: list[str]) -> str:
    """`yes`, or why not, by its number among `reasons`."""
    further = ", further" if row.further else ""
    if row.standing == "counts":
        return "yes" + further
    if row.why not in reasons:
        reasons.append(row.why)
    return f"{row.standing} [{reasons.index(row.why) + 1}]{further}"
