"""Each model of a testbed predicted from the others alone: `harness.fidelity --leave-one-out`.

Its computation then follows from that of the others, as the geometric mean over them: by operations
and bytes of each layer, at the data sheet's rates of the device (`layers.least_s`), and by batch.
Where batches are not told, only images tell of images and texts of texts, and batches are taken to
be equal. A constant whose source names the model is fitted anew to cells of the others: those of
the table and metric that it was read from, or of any that the model told something by. Where these
tell nothing, as a computation that was itself read from the model's, it stays, and is named: that
model is not pooled.
What compression costs is the device's. Errors are of the same cells, fitted and left out: those of
the model that count. Cells of no single model, or of a CSV of further ones, take no part.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import exp, inf, log
from statistics import fmean
from typing import NamedTuple

from rich.console import Console
from scipy.optimize import minimize_scalar

from harness.fidelity.assess import Assessed, Distance, assessed, distance
from harness.fidelity.cells import Cell, Unpredictable
from harness.fidelity.layers import least_s, takes_images
from harness.fidelity.testbed import Compute, Testbed
from harness.fidelity.timing import Timing

DATA_SHEET = {"flops": 1.0, "memory_bytes_per_s": inf}  # where none is told, operations count alone
FITTED_ANEW = ("efficiency", "alpha_s", "gather_factor")  # of the network
FACTORS = (0.2, 5.0)  # of a constant, within which it is sought; an efficiency is 1 at most
CLOSE = 1e-3  # of a constant's logarithm


class LeftOut(NamedTuple):
    """A model: its cells that count, by the testbed as it is and by the others alone."""

    paper: str
    model: str
    fitted: list[Assessed]
    blind: list[Assessed]
    kept: list[str]  # constants that only cells of this model tell


def leave_one_out(timing: Timing, cells: Sequence[Cell]) -> Iterator[LeftOut]:
    """Each model of a testbed that has the computation of two or more."""
    bed = timing.testbed
    models = sorted({model for model, _ in bed.computes})
    for model in models if len(models) > 1 else ():
        own = [cell for cell in cells if _key(cell.model) == model]
        own = [cell for cell in own if bed.standing(cell)[0] == "counts"]
        if not own:
            continue
        blind, kept = _without(timing, bed, model, cells)
        known, found = (_predicted(timing, each, own, cells) for each in (bed, blind))
        if not distance(known, counting=True).cells:
            continue
        yield LeftOut(timing.paper, model, known, found, kept)


def _predicted(
    timing: Timing, bed: Testbed, own: Sequence[Cell], cells: Sequence[Cell]
) -> list[Assessed]:
    predictor = timing.predictor(bed, cells)
    rows = [assessed(cell, predictor, further=False) for cell in own]
    return [row for row in rows if row is not None]


def _without(
    timing: Timing, bed: Testbed, model: str, cells: Sequence[Cell]
) -> tuple[Testbed, list[str]]:
    computes, kept = dict(bed.computes), []
    for name, run in bed.computes:
        if name == model and (known := _others(bed, model, run)):
            computes[name, run] = _by_layers(bed, bed.computes[name, run], model, known)
        elif name == model:
            kept.append(f"computation {run}".strip())
    bed = replace(bed, computes=computes)
    for constant in FITTED_ANEW:
        if constant not in bed.constants or not _names(bed.constants[constant].source, model):
            continue
        others = _tell(bed, bed.constants[constant].source, model, cells)
        if others:
            bed = bed.changed({constant: _fitted(timing, bed, constant, others, cells)})
        else:
            kept.append(constant)
    return bed, kept


def _tell(bed: Testbed, source: str, model: str, cells: Sequence[Cell]) -> list[Cell]:
    """Cells of others, of the source's table if it has any, and of metrics that were inputs.

    None of those that a testbed leaves out.
    """
    wanted = {(c.id, c.metric) for c in cells if _is_input(bed, c, model)}
    others = [c for c in cells if (c.id, c.metric) in wanted and c.value and c.model]
    others = [c for c in others if _key(c.model) != model and bed.standing(c)[0] != "left out"]
    return [c for c in others if c.id in source] or others


def _is_input(bed: Testbed, cell: Cell, model: str) -> bool:
    return _key(cell.model) == model and bed.standing(cell)[0] == "input"


def _fitted(
    timing: Timing, bed: Testbed, constant: str, others: Sequence[Cell], cells: Sequence[Cell]
) -> float:
    """The value at which cells of `others` are off by the least, in the mean square of logs."""
    known, most = bed[constant], 1.0 if constant == "efficiency" else float("inf")

    def off(logarithm: float) -> float:
        changed = bed.changed({constant: min(most, known * exp(logarithm))})
        predictor, squares = timing.predictor(changed, cells), []
        for cell in others:
            try:
                predicted = predictor.predict(cell)
            except Unpredictable:
                continue
            if predicted and cell.value:
                squares.append(log(predicted / cell.value) ** 2)
        return fmean(squares) if squares else 0.0

    low, high = map(log, FACTORS)
    found = minimize_scalar(off, bounds=(low, high), method="bounded", options={"xatol": CLOSE})
    return min(most, known * exp(float(found.x)))


def _others(bed: Testbed, model: str, run: str) -> list[tuple[str, Compute]]:
    """Computation of other models, of that run if there is any, that was not read from this one."""
    own = bed.computes[model, run]
    known = [
        (other, which, each)
        for (other, which), each in bed.computes.items()
        if other != model
        and not _names(bed.sources.get((other, which), ""), model)
        and ((own.batch and each.batch) or takes_images(other) == takes_images(model))
    ]
    same = [(other, each) for other, which, each in known if which == run]
    return same or [(other, each) for other, _, each in known]


def _by_layers(
    bed: Testbed, own: Compute, model: str, others: list[tuple[str, Compute]]
) -> Compute:
    """Seconds of `model`, where the device comes as near to its rates as with the others."""
    rates = [bed[name] if name in bed.constants else most for name, most in DATA_SHEET.items()]

    def ratio(other: str, each: Compute) -> float:
        batches = own.batch / each.batch if own.batch and each.batch else 1.0
        return least_s(model, *rates) / least_s(other, *rates) * batches

    def seconds(side: str) -> float:
        return exp(fmean(log(getattr(each, side) * ratio(other, each)) for other, each in others))

    return Compute(seconds("forward_s"), seconds("backward_s"), own.batch)


def _names(source: str, model: str) -> bool:
    return model in source.replace("-", "").lower()


def _key(model: str) -> str:
    """A model as testbeds call it, from a cell: "VGG-19 (by order)" is vgg19."""
    return model.partition(" (")[0].replace("-", "").lower()


def show_left_out(console: Console, models: Iterable[LeftOut]) -> None:
    """A line a model as soon as it is there, and together all that others tell wholly."""
    found = []
    for each in models:
        found.append(each)
        fitted, blind = distance(each.fitted, True), distance(each.blind, True)
        kept = f"; only its own cells tell {', '.join(each.kept)}" if each.kept else ""
        console.print(_said(f"{each.paper}, {each.model}", fitted, blind) + kept, soft_wrap=True)
    rows = [
        distance([row for each in found if not each.kept for row in getattr(each, side)], True)
        for side in ("fitted", "blind")
    ]
    console.print(_said("all models that nothing of was kept", *rows), soft_wrap=True)


def _said(what: str, fitted: Distance, blind: Distance) -> str:
    return (
        f"{what}: {fitted.cells} cells, fitted median {fitted.median:.1f} % p90 {fitted.p90:.1f} %"
        f", left out median {blind.median:.1f} % p90 {blind.p90:.1f} %"
    )
