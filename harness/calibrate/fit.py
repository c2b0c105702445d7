"""The constants of the cost model that explain measured times best, by least squares.

Errors are relative, so that a collective of a millisecond counts as much as one of a second.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from harness.calibrate.links import LEAST_BYTES, Sample

BITS_PER_S = 1e6  # of one Mbit/s
NORMAL = 1.4826  # standard deviations in a median absolute deviation
ROUNDS = {"all_reduce": 2, "all_gather": 1}  # times around the ring


class Links(NamedTuple):
    """Constants of collectives, in real seconds, and how far they are off."""

    alpha_s: float
    operation_s: float
    efficiency: float
    median: float  # absolute error of a sample, relative
    worst: float
    noise: float  # standard deviation of equal collectives, relative


class Compression(NamedTuple):
    """What a compressor takes for a bucket: so much, and so much for each element."""

    bucket_us: float
    element_ns: float
    median: float  # absolute error of a sample, relative
    worst: float


def links(samples: Sequence[Sample], cores: int | None = None) -> Links:
    """Time = operation + rounds (P-1) alpha + volume / (efficiency rate), as in harness.simulate.

    Operation and alpha are processors' work, and take as much longer as ranks share one of `cores`;
    None: each has its own.
    ValueError when the samples do not tell: too few, or none that bytes take time in.
    """
    rows = [_row(each, cores) for each in samples]
    solution, errors = _solved(rows, [each.seconds for each in samples])
    operation_s, alpha_s, slowness = solution
    if not slowness:
        raise ValueError("no sample whose time grows with its bytes: the links' rate is not known")
    return Links(
        alpha_s=float(alpha_s),
        operation_s=float(operation_s),
        efficiency=float(min(1.0, 1 / slowness)),
        median=float(np.median(errors)),
        worst=float(errors.max()),
        noise=noise(samples),
    )


def noise(samples: Sequence[Sample]) -> float:
    """Relative standard deviation of the repetitions of `samples` that send more than the least.

    From the differences of neighbours: a machine that slowly becomes busier is no noise, and a
    median lets no single stall count. 0 where nothing was repeated.
    """
    differences = [
        abs(after - before) / each.seconds
        for each in samples
        if each.nbytes > LEAST_BYTES
        for before, after in pairwise(each.times_s)
    ]
    return float(NORMAL / sqrt(2) * np.median(differences)) if differences else 0.0


def predicted_s(constants: Links, sample: Sample, cores: int | None = None) -> float:
    """What `constants` say that a sample takes."""
    fixed, messages, bytes_s = _row(sample, cores)
    seconds = fixed * constants.operation_s + messages * constants.alpha_s
    return seconds + bytes_s / constants.efficiency


def compression(elements: Sequence[int], seconds: Sequence[float]) -> Compression:
    """Time = bucket + elements x element."""
    (bucket_s, element_s), errors = _solved([(1.0, n) for n in elements], seconds)
    return Compression(
        bucket_us=float(1e6 * bucket_s),
        element_ns=float(1e9 * element_s),
        median=float(np.median(errors)),
        worst=float(errors.max()),
    )


def _row(sample: Sample, cores: int | None) -> tuple[float, float, float]:
    rounds, others = ROUNDS[sample.collective], sample.nodes - 1
    share = 1 / sample.nodes if sample.collective == "all_reduce" else 1.0
    volume = rounds * others * share * sample.nbytes
    crowd = max(1.0, sample.nodes / cores) if cores else 1.0
    return crowd, crowd * rounds * others, volume * 8 / (sample.rate_mbit * BITS_PER_S)


def _solved(
    rows: Sequence[tuple[float, ...]], seconds: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, none below 0, and the absolute relative error of each row."""
    matrix, times = np.array(rows), np.array(seconds)
    if len(times) < matrix.shape[1]:
        raise ValueError(f"{matrix.shape[1]} samples at least are needed, got {len(times)}")
    scaled = matrix / times[:, None]
    largest = scaled.max(axis=0)
    solution = nnls(scaled / largest, np.ones(len(times)))[0] / largest
    return solution, np.abs(scaled @ solution - 1)
