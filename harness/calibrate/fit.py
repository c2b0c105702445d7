"""The constants of the cost model that explain measured times best, by least squares.

Errors are relative, so that a collective of a millisecond counts as much as one of a second.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import expm1, sqrt
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
    wake_s: float = 0.0  # real, of a message, until who waits for it goes on
    latency_noise: float = 0.0  # deviation of what a message takes beside its bytes, relative


class Compression(NamedTuple):
    """What a compressor takes for a bucket: so much, and so much for each element."""

    bucket_us: float
    element_ns: float
    median: float  # absolute error of a sample, relative
    worst: float


def links(samples: Sequence[Sample], cores: int | None = None) -> Links:
    """Time = operation + rounds (P-1) alpha + volume / (efficiency rate), as in harness.simulate.

    Operation and alpha are processors' work, and take as much longer as ranks share one of `cores`;
    None: each has its own. What wakes a rank is told by collectives that did not begin in a row.
    ValueError when the samples do not tell: too few, or none that bytes take time in.
    """
    alone, samples = _parted(samples)
    rows = [_row(each, cores) for each in samples]
    solution, errors = _solved(rows, [each.seconds for each in samples])
    operation_s, alpha_s, slowness = solution
    if not slowness:
        raise ValueError("no sample whose time grows with its bytes: the links' rate is not known")
    latency = latency_noise(alone)
    of_messages = [
        latency / sqrt(_messages(each)) * (fixed * operation_s + crowded * alpha_s) / each.seconds
        for each, (fixed, crowded, _) in zip(samples, rows, strict=True)
    ]
    return Links(
        alpha_s=float(alpha_s),
        operation_s=float(operation_s),
        efficiency=float(min(1.0, 1 / slowness)),
        median=float(np.median(errors)),
        worst=float(errors.max()),
        noise=noise(samples, of_messages),
        wake_s=wake_s(alone, cores),
        latency_noise=latency,
    )


def _parted(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Those that began alone, and those in a row."""
    return [each for each in samples if each.alone], [each for each in samples if not each.alone]


def wake_s(alone: Sequence[Sample], cores: int | None = None) -> float:
    """Mean time of a message among those that ranks wake up for; 0 where none was measured.

    It takes as much longer as the root of the ranks that share one of `cores`. From medians, which
    no single stall moves: of a log-normal time the mean is sqrt(1 + relative deviation^2) of it.
    """
    means_s = [each.seconds * sqrt(1 + _deviation(each) ** 2) for each in alone]
    times_s = [mean_s / _wakings(each, cores) for each, mean_s in zip(alone, means_s, strict=True)]
    return float(np.median(times_s)) if times_s else 0.0


def latency_noise(alone: Sequence[Sample]) -> float:
    """Relative standard deviation of one of their messages; 0 where nothing was repeated.

    Messages in a row are late independently of each other: n together deviate by it over sqrt(n).
    """
    found = [_deviation(each) * sqrt(_messages(each)) for each in alone]
    return float(np.median(found)) if found else 0.0


def _deviation(sample: Sample) -> float:
    """Relative, of log-normal repetitions, from the differences of neighbours, as `noise`."""
    changes = [abs(np.log(after / before)) for before, after in pairwise(sample.times_s)]
    deviation = NORMAL / sqrt(2) * np.median(changes) if changes else 0.0
    return sqrt(expm1(deviation**2))


def noise(samples: Sequence[Sample], known: Sequence[float] | None = None) -> float:
    """Relative standard deviation of the repetitions of `samples` that send more than the least.

    `known` is that of what their messages take beside bytes, which is told apart. From the
    differences of neighbours: a machine that slowly becomes busier is no noise, and a median lets
    no single stall count. 0 where nothing was repeated.
    """
    deviations = [
        sqrt(max(0.0, (NORMAL / sqrt(2) * np.median(changes) / each.seconds) ** 2 - of_messages**2))
        for each, of_messages in zip(samples, known or [0.0] * len(samples), strict=True)
        if each.nbytes > LEAST_BYTES
        and (changes := [abs(after - before) for before, after in pairwise(each.times_s)])
    ]
    return float(np.median(deviations)) if deviations else 0.0


def predicted_s(constants: Links, sample: Sample, cores: int | None = None) -> float:
    """What `constants` say that a sample takes."""
    fixed, messages, bytes_s = _row(sample, cores)
    seconds = fixed * constants.operation_s + messages * constants.alpha_s
    seconds += bytes_s / constants.efficiency
    if sample.alone:
        return max(seconds, _wakings(sample, cores) * constants.wake_s)
    return seconds


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
    messages, crowd = _messages(sample), _crowd(sample, cores)
    share = 1 / sample.nodes if sample.collective == "all_reduce" else 1.0
    volume = messages * share * sample.nbytes
    return crowd, crowd * messages, volume * 8 / (sample.rate_mbit * BITS_PER_S)


def _wakings(sample: Sample, cores: int | None) -> float:
    """Messages in a row, each as much longer as ranks that sleep share a core."""
    return _messages(sample) * sqrt(_crowd(sample, cores))


def _messages(sample: Sample) -> int:
    """In a row."""
    return ROUNDS[sample.collective] * (sample.nodes - 1)


def _crowd(sample: Sample, cores: int | None) -> float:
    return max(1.0, sample.nodes / cores) if cores else 1.0


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
