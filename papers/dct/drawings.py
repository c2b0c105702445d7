"""Draw DCT's experiments: sparsity, life-spans of thresholds, and watched magnitudes."""

from functools import partial
from statistics import fmean
from typing import Any

import pandas as pd

from harness.reporting.analysis import load
from harness.reporting.analysis.comparison import Comparison
from harness.reporting.figures.theme import Drawing, Figure
from papers.dct import plots, sparsity, watch_drawings

FEWEST_DENSITIES, FEWEST_LIFESPANS = 3, 2  # values of one family that make a sweep
MEANS = "Means over seeds with 95 % intervals"
LOSSES, SHARES = 25, 100  # most points of a line; losses of single batches scatter
SENT = {
    "achieved_activation_density": ("activations", "crossed a cut"),
    "achieved_density": ("gradient entries", "a worker sent"),
}


def of_comparison(comparison: Comparison) -> dict[str, Drawing]:
    """Return drawings of one comparison by file name; none without a sweep or a watch."""
    table = _asked(comparison)
    densities = sparsity.vary(table, "density", FEWEST_DENSITIES)
    lifespans = sparsity.vary(table, "lifespan", FEWEST_LIFESPANS)
    found = _achieved_densities(comparison, table)
    if densities:
        found["quality_sparsity"] = _quality({"": comparison})
    has_loss = any(steps.loss.notna().any() for steps in comparison.steps.values())
    if (densities or lifespans) and has_loss:
        found["loss_steps"] = _losses(comparison, sparsity.baseline(table, comparison.baseline))
    communicates = any(steps.sent_bytes.any() for steps in comparison.steps.values())
    if densities and communicates:
        found["step_sparsity"] = _times(comparison, table, "density")
    if lifespans and communicates and not _costs(comparison):
        found["step_lifespan"] = _times(comparison, table, "lifespan")
    return watch_drawings.of_comparison(comparison) | found


def of_experiment(comparisons: dict[str, Comparison]) -> dict[str, Drawing]:
    """Return a drawing of quality over sparsity; {} if no setting varies the density enough."""
    varies = [
        sparsity.vary(_asked(each), "density", FEWEST_DENSITIES) for each in comparisons.values()
    ]
    return {"quality_sparsity": _quality(comparisons)} if any(varies) else {}


def _asked(comparison: Comparison) -> pd.DataFrame:
    """Return a row of `sparsity.RequestedSparsity` for each method."""
    paths = comparison.runs.drop_duplicates("method").set_index("method").path
    rows = [sparsity.asked(str(method), load.config(path)) for method, path in paths.items()]
    return pd.DataFrame(rows, columns=list(sparsity.RequestedSparsity._fields))


def _sent(comparison: Comparison) -> pd.DataFrame:
    """Return `_asked` with the density actually sent, to two digits, as thresholds drift.

    For a method that sends all activations it is the density of gradients.
    """
    table, runs = _asked(comparison), comparison.runs
    sent = [
        fmean(sparsity.sent(comparison.steps[path]) for path in runs.path[runs.method == method])
        for method in table.method
    ]
    return table.assign(density=[float(f"{each:.2g}") for each in sent])


def _by_seed(comparison: Comparison, column: str, most: int) -> dict[str, pd.DataFrame]:
    """Return `sparsity.by_seed` of each method."""
    found = {}
    for method, runs in comparison.runs.groupby("method"):
        tables = {(run.seed, run.network_seed): comparison.steps[run.path] for run in _rows(runs)}
        found[str(method)] = sparsity.by_seed(tables, column, most)
    return found


def _achieved_densities(comparison: Comparison, table: pd.DataFrame) -> dict[str, Drawing]:
    """Return drawings of the density sent, for activations and gradients if runs record it."""
    known = dict(zip(table.method, table.density, strict=True))
    found = {}
    for column, (what, done) in SENT.items():
        if all(steps[column].isna().all() for steps in comparison.steps.values()):
            continue
        found[column] = Drawing(
            f"Share of {what} that {done}, beside the density that was asked for (dotted). "
            f"{MEANS} shaded.",
            partial(_achieved_density, comparison, column, known, what),
        )
    return found


def _achieved_density(
    comparison: Comparison, column: str, asked: dict[str, float], what: str
) -> Figure:
    found = _by_seed(comparison, column, SHARES)
    shares = {method: sparsity.over_seeds(table) for method, table in found.items()}
    return plots.achieved_density(shares, asked, what, comparison.title)


def _losses(comparison: Comparison, base: str | None) -> Drawing:
    """Draw the training loss, as it is and against the baseline's on the same batches."""

    def draw() -> Figure:
        found = _by_seed(comparison, "loss", LOSSES)
        own = {method: sparsity.over_seeds(table) for method, table in found.items()}
        against = {
            method: sparsity.over_seeds(sparsity.percent_over(table, found[base]))
            for method, table in found.items()
            if base is not None and method != base
        }
        return plots.losses(own, against, base, comparison.title)

    said = f", and over {base}'s on the same batches" if base else ""
    return Drawing(
        f"Training loss over steps, means of stretches of steps{said}. {MEANS} shaded.", draw
    )


def _times(comparison: Comparison, table: pd.DataFrame, column: str) -> Drawing:
    """Draw step times against `column` of `RequestedSparsity`, a bar per method, baseline first."""
    base = sparsity.baseline(table, comparison.baseline)
    label = {"density": "sparsity sent, 1 − density", "lifespan": "life-span of thresholds (steps)"}

    def draw() -> Figure:
        shown = table[table[column].notna() | (table.method == base)]
        shown = shown.assign(first=shown.method != base).sort_values(
            ["first", "family", column], ascending=[True, True, column == "lifespan"]
        )
        shown = shown.assign(
            density=shown.method.map(_sent(comparison).set_index("method").density)
        )
        families = shown.family[shown["first"]].nunique() > 1
        places = [_place(row, column, base, families) for row in _rows(shown)]
        times = shown.assign(place=places).merge(
            sparsity.times(comparison.measured, base), on="method"
        )
        return plots.step_times(times, label[column], base, comparison.title)

    note = ""
    if device := _costs(comparison):
        name = device.get("name", "a fit to the machine")
        note = f" Compression is taken to last what its kind costs by {name}."
    return Drawing(
        f"Mean time of a step and its parts against the {label[column].split(',')[0]}, and by how "
        f"much the step is longer or shorter than {base}'s. {MEANS}.{note}",
        draw,
    )


def _costs(comparison: Comparison) -> dict[str, Any]:
    """Return the device whose compression costs virtual time used; empty if they were measured.

    It charges by kind of compression, so such runs cannot show the effect of life-spans.
    """
    network = load.config(comparison.runs.path.iloc[0]).get("network") or {}
    device: dict[str, Any] = network.get("device") or {}
    return device if device.get("costs") else {}


def _place(row: Any, column: str, base: str | None, families: bool) -> str:
    if row.method == base:
        return str(row.method)
    value = f"{100 * (1 - row.density):.4g} %" if column == "density" else f"{row.lifespan:g}"
    return f"{value}\n{row.family}" if families else value


def _rows(table: pd.DataFrame) -> Any:
    return table.itertuples()


def _quality(comparisons: dict[str, Comparison]) -> Drawing:
    """Draw every metric of the last evaluation against sparsity, a panel for each comparison."""
    first = next(iter(comparisons.values()))
    title = first.title if len(comparisons) == 1 else str(first.runs.experiment.iloc[0])
    against = sparsity.baseline(_asked(first), first.baseline)
    said = f", against {against} of the same seed" if against else ""
    return Drawing(
        f"Quality at the end against sparsity{said}. {MEANS}.",
        lambda: plots.quality_sparsity(_changes(comparisons), title),
    )


def _changes(comparisons: dict[str, Comparison]) -> dict[str, dict[str, pd.DataFrame]]:
    """Return tables by axis label and setting, with columns family, density, value, low, high."""
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for setting, comparison in comparisons.items():
        table, rows = _asked(comparison), _evaluations(comparison)
        base = sparsity.baseline(table, comparison.baseline)
        sent = _sent(comparison).set_index("method").density
        for metric in sorted(rows.metric.unique(), key=lambda name: ("loss" not in name, name)):
            changed = table.merge(sparsity.changes(rows, metric, base), on="method")
            swept = changed.groupby("family").density.transform("nunique") >= 2
            changed = changed.assign(density=changed.method.map(sent))
            label = sparsity.unit(metric, base)
            found.setdefault(label, {})[setting] = changed[swept]
    return found


def _evaluations(comparison: Comparison) -> pd.DataFrame:
    rows = [
        comparison.evaluations[run.path].assign(
            method=run.method, seed=run.seed, network_seed=run.network_seed
        )
        for run in _rows(comparison.runs)
    ]
    return pd.concat(rows, ignore_index=True)
