"""Predict each model of a testbed from the other models: `study fidelity --leave-one-out`.

The computation of the model follows from the others, as the geometric mean over them. It scales
with the operations and bytes of each layer at the device's data-sheet rates (`layers.least_s`) and
with the batch. If a batch is unknown, image models predict only image models and text models only
text models, with equal batches.

A constant whose source names the model is fitted again to cells of other models. These cells come
from the constant's own table and metric; if there are none, from any metric that was an input of
the model. If no such cell exists, the constant stays and is named, and the model is not pooled. The
same holds for a computation that was itself read from the model's. Compression costs belong to the
device and stay. Both errors, with and without the model's inputs, cover the same cells: the model's
cells that count. Cells of several models and further cells take no part.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import exp, inf, log
from statistics import fmean
from typing import NamedTuple

from rich.console import Console
from scipy.optimize import minimize_scalar

from harness.fidelity.assess import Assessed, Distance, assessed, distance
from harness.fidelity.bench import Bench, Compute
from harness.fidelity.layers import least_s, takes_images
from harness.fidelity.measurement import Measurement, Unpredictable
from harness.fidelity.predictor import Predictor

DATA_SHEET = {"flops": 1.0, "memory_bytes_per_s": inf}  # if unknown, only operations count
FITTED_ANEW = ("efficiency", "alpha_s", "gather_factor")  # constants of the network
FACTORS = (0.2, 5.0)  # search range around a constant; an efficiency is at most 1
CLOSE = 1e-3  # tolerance of a constant's logarithm


class LeftOut(NamedTuple):
    """The cells of one model that count, predicted with and without the model's own inputs."""

    paper: str
    model: str
    fitted: list[Assessed]
    blind: list[Assessed]
    kept: list[str]  # constants that no cell of another model determines


def leave_one_out(
    kind: type[Predictor], bed: Bench, cells: Sequence[Measurement]
) -> Iterator[LeftOut]:
    """Yield the result of each model of a testbed with computations of at least two models."""
    models = sorted({model for model, _ in bed.computes})
    for model in models if len(models) > 1 else ():
        own = [c for c in cells if _key(c.model) == model and bed.standing(c)[0] == "counts"]
        if not own:
            continue
        blind, kept = _without(kind, bed, model, cells)
        fitted_rows, blind_rows = (
            [row for cell in own if (row := assessed(cell, kind(each, cells), further=False))]
            for each in (bed, blind)
        )
        if distance(fitted_rows, counting=True).cells:
            yield LeftOut(kind.paper, model, fitted_rows, blind_rows, kept)


def _without(
    kind: type[Predictor], bed: Bench, model: str, cells: Sequence[Measurement]
) -> tuple[Bench, list[str]]:
    """Return the testbed without inputs of `model`, and the names of the inputs that remain."""
    computes, kept = dict(bed.computes), list[str]()
    for name, run in bed.computes:
        if name != model:
            continue
        if others := _others(bed, model, run):
            computes[name, run] = _by_layers(bed, bed.computes[name, run], model, others)
        else:
            kept.append(f"computation {run}".strip())
    bed = replace(bed, computes=computes)
    for constant in FITTED_ANEW:
        if constant not in bed.constants or not _names(bed.sources.get(constant, ""), model):
            continue
        if known := _cells_of_others(bed, bed.sources[constant], model, cells):
            bed = bed.with_constants({constant: _fitted(kind, bed, constant, known, cells)})
        else:
            kept.append(constant)
    return bed, kept


def _cells_of_others(
    bed: Bench, source: str, model: str, cells: Sequence[Measurement]
) -> list[Measurement]:
    """Return cells of other models whose table and metric were an input of `model`.

    If some of them are from the table that `source` names, return only those. Cells that the
    testbed leaves out never qualify.
    """
    inputs = {
        (cell.id, cell.metric)
        for cell in cells
        if _key(cell.model) == model and bed.standing(cell)[0] == "input"
    }
    others = [c for c in cells if (c.id, c.metric) in inputs and c.value and c.model]
    others = [c for c in others if _key(c.model) != model and bed.standing(c)[0] != "left out"]
    return [c for c in others if c.id in source] or others


def _fitted(
    kind: type[Predictor],
    bed: Bench,
    constant: str,
    known: Sequence[Measurement],
    cells: Sequence[Measurement],
) -> float:
    """Return the value of `constant` with the least mean square log error over cells `known`."""
    start, most = bed[constant], 1.0 if constant == "efficiency" else inf

    def error(logarithm: float) -> float:
        predictor = kind(bed.with_constants({constant: min(most, start * exp(logarithm))}), cells)
        squares = []
        for cell in known:
            try:
                predicted = predictor.predict(cell)
            except Unpredictable:
                continue
            if predicted and cell.value:
                squares.append(log(predicted / cell.value) ** 2)
        return fmean(squares) if squares else 0.0

    low, high = map(log, FACTORS)
    found = minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": CLOSE})
    return min(most, start * exp(float(found.x)))


def _others(bed: Bench, model: str, run: str) -> list[tuple[str, Compute]]:
    """Return the computations of other models that were not read from `model`.

    If some of them are of the same run, return only those.
    """
    own = bed.computes[model, run]
    known = [
        (other, which, compute)
        for (other, which), compute in bed.computes.items()
        if other != model
        and not _names(bed.sources.get((other, which), ""), model)
        and ((own.batch and compute.batch) or takes_images(other) == takes_images(model))
    ]
    same = [(other, compute) for other, which, compute in known if which == run]
    return same or [(other, compute) for other, _, compute in known]


def _by_layers(bed: Bench, own: Compute, model: str, others: list[tuple[str, Compute]]) -> Compute:
    """Return the computation of `model` at the share of data-sheet rates that others reach."""
    rates = [bed[name] if name in bed.constants else most for name, most in DATA_SHEET.items()]

    def seconds(side: str) -> float:
        logarithms = []
        for other, compute in others:
            batches = own.batch / compute.batch if own.batch and compute.batch else 1.0
            ratio = least_s(model, *rates) / least_s(other, *rates) * batches
            logarithms.append(log(getattr(compute, side) * ratio))
        return exp(fmean(logarithms))

    return Compute(seconds("forward_s"), seconds("backward_s"), own.batch)


def _names(source: str, model: str) -> bool:
    return model in source.replace("-", "").lower()


def _key(model: str) -> str:
    """Return a cell's model in the spelling of testbeds: "VGG-19 (by order)" is vgg19."""
    return model.partition(" (")[0].replace("-", "").lower()


def show_left_out(console: Console, models: Iterable[LeftOut]) -> None:
    """Print a line per model as it is ready, then the pool of all models that kept no constant."""
    found = []
    for each in models:
        found.append(each)
        kept = f"; only its own cells tell {', '.join(each.kept)}" if each.kept else ""
        rows = (distance(each.fitted, True), distance(each.blind, True))
        console.print(_line(f"{each.paper}, {each.model}", *rows) + kept, soft_wrap=True)
    pooled = [each for each in found if not each.kept]
    fitted = distance([row for each in pooled for row in each.fitted], True)
    blind = distance([row for each in pooled for row in each.blind], True)
    console.print(_line("all models that nothing of was kept", fitted, blind), soft_wrap=True)


def _line(label: str, fitted: Distance, blind: Distance) -> str:
    return (
        f"{label}: {fitted.cells} cells, fitted median {fitted.median:.1f} % p90 {fitted.p90:.1f} %"
        f", left out median {blind.median:.1f} % p90 {blind.p90:.1f} %"
    )
