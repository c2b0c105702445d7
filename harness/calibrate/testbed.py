"""Fit the constants of a bench of benchmark rows to its inputs, and to no other row.

There are at most as many constants as inputs, so the rows determine each. The fit minimizes the
squared logarithm of predicted over published values.
"""

from collections.abc import Sequence
from math import exp, log, nan
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from harness.fidelity.bench import FITTED, Bench
from harness.fidelity.collectives import RowPredictor
from harness.fidelity.measurement import BadMeasurement, Measurement

STEP = 1e-3  # difference of a constant's logarithm, to estimate slopes
CONSTANTS = "\nconstants: # fitted to the inputs: python -m harness.doctor --calibrate --testbed\n"


def inputs_of(bench: Bench, rows: Sequence[Measurement]) -> list[Measurement]:
    """Return the input rows of a bench.

    Raise `BadMeasurement` unless each input selects one row, or if inputs are too few.
    """
    taken = [row for row in rows if bench.has(row)]
    for selector in bench.inputs:
        if (count := sum(map(selector.takes, taken))) != 1:
            told = dict(selector.columns)
            raise BadMeasurement(f"{bench.name}: an input must be one row, got {count} for {told}")
    if len(bench.fit) > len(bench.inputs):
        least = len(bench.fit)
        raise BadMeasurement(
            f"{bench.name}: inputs must be at least {least} rows, as many as are fitted"
        )
    return [row for row in taken if bench.standing(row)[0] == "input"]


def fitted(bench: Bench, rows: Sequence[Measurement]) -> Bench:
    """Return `bench` with the constants in `fit` fitted; `BadMeasurement` without its inputs."""
    inputs = inputs_of(bench, rows)
    bounds = [FITTED[name.partition(".")[0]] for name in bench.fit]
    low, high = (np.log(np.array(side)) for side in zip(*bounds, strict=True))

    def with_logs(logs: np.ndarray) -> Bench:
        return bench.with_constants(dict(zip(bench.fit, map(exp, logs), strict=True)))

    def residuals(logs: np.ndarray) -> list[float]:
        predictor = RowPredictor(with_logs(logs))
        return [log(predictor.predict(row) / (row.value or nan)) for row in inputs]

    begin = np.array([low_ if name.endswith("_s") else (low_ + high_) / 2
                      for name, low_, high_ in zip(bench.fit, low, high, strict=True)])  # fmt: skip
    starts = [begin, (3 * low + high) / 4, (low + high) / 2, (low + 3 * high) / 4]
    found = min(
        (
            least_squares(residuals, np.clip(x, low + 1e-6, high - 1e-6), bounds=(low, high),
                          diff_step=STEP, x_scale=1.0)
            for x in starts
        ),
        key=lambda each: each.cost,
    )  # fmt: skip
    return with_logs(found.x)


def write(path: Path, bench: Bench) -> None:
    """Replace the constants at the end of a testbed's file by those of `bench`."""
    kept = path.read_text().partition(CONSTANTS)[0].rstrip("\n")
    told = "".join(f"  {name}: {value:.5g}\n" for name, value in bench.constants.items())
    path.write_text(kept + CONSTANTS + told)
