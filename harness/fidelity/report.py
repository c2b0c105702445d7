"""Print the tables of `python -m harness study fidelity`: constants, cells, distances, orders."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from harness.fidelity.assess import CHANGES, Assessed, Distance, distance
from harness.fidelity.bench import Bench

UNITS = {
    "bucket_us": "us a bucket",
    "matrix_us": "us a matrix",
    "column_us": "us a column",
    "element_ns": "ns an element",
    "rank_ns": "ns an element and rank",
}
DIGITS = 4  # significant, of a figure
RIGHT = ("value", "published", "predicted", "error (%)", "count", "median", "p90", "worst", "rho")
WIDTHS = {"model": 22, "operation": 22, "method": 34, "network": 34}  # longer texts are folded


def number(value: float | None) -> str:
    """Format a number with four digits: 0.0123, 1.234, 12.34, 12345; "" for None."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 10**DIGITS else f"{value:.{DIGITS}g}"


def constants(console: Console, bench: Bench) -> None:
    """Print the constants of a bench, each with its source."""
    table = _table(bench.title, "constant", "value", "unit", "read from")
    for name, value in bench.constants.items():
        source = bench.sources.get(name, "fitted to its inputs")
        table.add_row(name, number(value), bench.units.get(name, ""), source)
    for name, cost in bench.costs.items():
        for key, value in bench.cost(name):
            table.add_row(f"compression, {name}", number(value), UNITS[key], cost["source"])
    for (model, run), each in bench.computes.items():
        name = f"compute, {model}{', ' + run if run else ''}"
        seconds = f"{number(each.forward_s)} + {number(each.backward_s)}"
        table.add_row(name, seconds, "s, forward + backward", bench.sources[model, run])
    console.print(table, markup=False)


def cells(console: Console, name: str, rows: Sequence[Assessed]) -> None:
    """Print every measurement, then the numbered reasons why some do not count."""
    of_benchmarks = any(row.cell.operation for row in rows)
    subject = ("operation", "bytes") if of_benchmarks else ("model",)
    columns = ("id", *subject, "network", "workers", "method", "metric", "unit")
    table = _table(f"{name}: cells", *columns, "published", "predicted", "error (%)", "counts")
    reasons: list[str] = []
    for row in rows:
        texts = (getattr(row.cell, column) for column in columns)
        mark = "*" if row.cell.metric in CHANGES else ""
        error = "" if row.error is None else f"{mark}{100 * row.error:+.1f}"
        table.add_row(
            *("" if text is None else str(text) for text in texts), row.cell.text,
            number(row.predicted), error, _standing(row, reasons),
        )  # fmt: skip
    console.print(table, markup=False)
    if any(row.cell.metric in CHANGES for row in rows):
        console.print("  [*] of the factor: 10 % longer is 1.10 times as long", markup=False)
    for place, why in enumerate(reasons, 1):
        console.print(f"  [{place}] {why}", markup=False, soft_wrap=True)


def distances(console: Console, rows: Sequence[Assessed]) -> None:
    """Print absolute errors by table, for the cells that count and for all predictions."""
    both = ("count", "median", "p90", "worst", "all: count", "median", "p90", "worst")
    table = _table("absolute errors (%), by table", "table", *both)
    kinds: dict[str, list[Assessed]] = {}
    for row in rows:
        cell = row.cell
        parts = (cell.id, cell.operation, cell.metric) if cell.operation else (cell.id,)
        kinds.setdefault(", ".join(parts), []).append(row)
    for kind, own in kinds.items():
        if distance(own, counting=False).cells:
            found = (distance(own, counting) for counting in (True, False))
            table.add_row(kind, *(text for each in found for text in _distance(each)))
    console.print(table, markup=False)


def orders(console: Console, found: dict[tuple[str, str], float]) -> None:
    """Print how well predictions keep the published order of each model's methods."""
    title = "order of a model's cells (Spearman), also of those left out"
    table = _table(title, "table", "model", "rho")
    for (name, model), rho in found.items():
        table.add_row(name, model, f"{rho:.2f}")
    console.print(table, markup=False)


def pooled(label: str, found: Distance) -> str:
    """Format a pooled distance as one line."""
    return f"{label} median {found.median:.1f} % p90 {found.p90:.1f} % over {found.cells} cells"


def benchmark(console: Console, benches: Sequence[Bench], rows: Sequence[Assessed]) -> None:
    """Print constants, rows and distances of each bench with rows; benches are never pooled."""
    for bench in benches:
        if own := [row for row in rows if row.bench == bench.name]:
            constants(console, bench)
            cells(console, bench.name, own)
            distances(console, own)
            console.print(pooled(f"{bench.name}, no inputs:", distance(own, True)), markup=False)
    if strangers := sum(not row.bench for row in rows):
        console.print(f"{strangers} rows are of no testbed", markup=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        right = name.removeprefix("all: ") in RIGHT
        table.add_column(
            name, justify="right" if right else "left", overflow="fold", max_width=WIDTHS.get(name)
        )
    return table


def _distance(found: Distance) -> list[str]:
    if not found.cells:
        return ["0", "", "", ""]
    return [str(found.cells), *(f"{each:.1f}" for each in found[1:])]


def _standing(row: Assessed, reasons: list[str]) -> str:
    """Return `yes`, or the standing and the number of its reason, which is added to `reasons`."""
    further = ", further" if row.further else ""
    if row.standing == "counts":
        return "yes" + further
    if row.why not in reasons:
        reasons.append(row.why)
    return f"{row.standing} [{reasons.index(row.why) + 1}]{further}"
