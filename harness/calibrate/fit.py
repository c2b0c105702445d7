"""Fit of the cost model's constants to measured times, by least absolute errors.

Errors are relative, so that a collective of a millisecond counts as much as one of a second. They
are not squared, so that the few collectives in which TCP lost much do not dominate.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, expm1, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from harness.calibrate.links import Sample
from harness.config.backends import BETWEEN_CPUS
from harness.virtual.ring_finish import last_packet, packet_bytes
from harness.virtual.tcp_flows import segments

BITS_PER_S = 1e6  # of one Mbit/s
NORMAL = 1.4826  # standard deviations in a median absolute deviation
CLEARLY = 1.5  # times the time of wakings: longer samples are not bound by them
BETTER = 0.001  # by which shares by rate have to bring the median error down
LEAST_SHARE = 0.01  # of a rate, that payload has
ROUNDS = {"all_reduce": 2, "all_gather": 1}  # times around the ring
MOST_BESIDE_BYTES = 1500  # in a message, beside its own: one packet


class Bucket(NamedTuple):
    """Token bucket of a link: bytes that pass beyond its rate, in real seconds at that rate."""

    burst_s: float = 0.0
    packet_s: float = 0.0


class Links(NamedTuple):
    """Constants of collectives, in real seconds, and their errors."""

    alpha_s: float
    operation_s: float
    efficiency: float
    median: float  # absolute error of a sample, relative
    worst: float
    noise: float  # standard deviation of equal collectives, relative
    wake_s: float = 0.0  # real, from a message's arrival until the process that waits for it runs
    latency_noise: float = 0.0  # relative deviation of a message's latency
    bucket: Bucket = Bucket()
    message_bytes: float = 0.0  # overhead of a message, in bytes of payload
    efficiencies: Mapping[float, float] = {}  # by rate in Mbit/s, where they are off by less

    def share(self, rate_mbit: float) -> float:
        """Return payload's share of a rate."""
        return self.efficiencies.get(rate_mbit, self.efficiency)


def links(
    samples: Sequence[Sample], cores: int | None = None, bucket: Bucket | None = None
) -> Links:
    """Fit time = operation + rounds (P-1) alpha + volume / (efficiency rate), as harness.virtual.

    The volume includes each message's overhead, less what `bucket` lets pass at once. For
    consecutive buckets the operation counts once per bucket. Alpha is processor work, and grows
    with ranks that share one of `cores`; with None each rank has its own core. Long collectives
    determine both constants, since transfers hide wake-ups there. Short ones determine the cost of
    wake-ups. Raises ValueError for too few samples, or none whose bytes take time.
    """
    short = [each for each in samples if each.short]
    waking_s = wake_s(short, cores)
    long = [
        each
        for each in samples
        if not each.short and each.seconds > CLEARLY * waking_s * _wakings(each, cores)
    ]
    bucket = bucket or Bucket()
    rows = [_row(each, cores, bucket) for each in long]
    paid_s = [each.seconds + each.buckets * bucket.burst_s for each in long]
    told = [
        (fixed, crowded, own_s, own_s + MOST_BESIDE_BYTES * byte_s)
        for fixed, crowded, own_s, byte_s in rows
    ]
    operation_s, alpha_s, alone, with_most = solved(told, paid_s)[0]  # one of both, or some of each
    slowness = alone + with_most
    if not slowness:
        raise ValueError("no sample whose time grows with its bytes: the links' rate is not known")
    latency = latency_noise(short)
    of_messages = [
        latency / sqrt(_messages(each)) * (fixed * operation_s + crowded * alpha_s) / each.seconds
        for each, (fixed, crowded, *_) in zip(long, rows, strict=True)
    ]
    found = Links(
        alpha_s=float(alpha_s),
        operation_s=float(operation_s),
        efficiency=float(min(1.0, 1 / slowness)),
        median=0.0,
        worst=0.0,
        noise=noise(long, of_messages),
        wake_s=waking_s,
        latency_noise=latency,
        bucket=bucket,
        message_bytes=float(MOST_BESIDE_BYTES * with_most / slowness),
    )
    by_rate = found._replace(efficiencies=_efficiencies(found, long, rows))
    one, other = (_off(constants, samples, cores) for constants in (found, by_rate))
    return other if other.median < one.median - BETTER else one


def _off(constants: Links, samples: Sequence[Sample], cores: int | None) -> Links:
    """Return `constants` with the errors of their predictions filled in."""
    errors = [abs(predicted_s(constants, each, cores) / each.seconds - 1) for each in samples]
    return constants._replace(median=float(np.median(errors)), worst=max(errors))


def _efficiencies(
    constants: Links, long: Sequence[Sample], rows: Sequence[tuple[float, float, float, float]]
) -> dict[float, float]:
    """Return, for every rate, payload's share in the time beside other costs."""
    found: dict[float, list[float]] = {}
    for each, (fixed, messages, bytes_s, byte_s) in zip(long, rows, strict=True):
        left_s = each.seconds + each.buckets * constants.bucket.burst_s
        left_s -= fixed * constants.operation_s + messages * constants.alpha_s
        if left_s > 0:
            carried_s = bytes_s + constants.message_bytes * byte_s
            found.setdefault(each.rate_mbit, []).append(carried_s / left_s)
    least = LEAST_SHARE
    return {rate: float(np.clip(np.median(shares), least, 1)) for rate, shares in found.items()}


def wake_s(short: Sequence[Sample], cores: int | None = None) -> float:
    """Return the mean time of a message that wakes a rank, or 0 if none was measured.

    It is computed from medians, which a single stall does not move. For log-normal times the mean
    is sqrt(1 + relative deviation^2) times the median.
    """
    means_s = [each.seconds * sqrt(1 + _deviation(each) ** 2) for each in short]
    times_s = [mean_s / _wakings(each, cores) for each, mean_s in zip(short, means_s, strict=True)]
    return float(np.median(times_s)) if times_s else 0.0


def latency_noise(short: Sequence[Sample]) -> float:
    """Return the relative standard deviation of one message, or 0 without repetitions.

    Consecutive messages are late independently, so n together deviate by it over sqrt(n).
    """
    found = [_deviation(each) * sqrt(_messages(each)) for each in short]
    return float(np.median(found)) if found else 0.0


def _deviation(sample: Sample) -> float:
    """Return the relative deviation of log-normal repetitions, from differences of neighbours."""
    changes = [abs(np.log(after / before)) for before, after in pairwise(sample.times_s)]
    deviation = NORMAL / sqrt(2) * np.median(changes) if changes else 0.0
    return sqrt(expm1(deviation**2))


def noise(samples: Sequence[Sample], known: Sequence[float] | None = None) -> float:
    """Return the relative standard deviation of repetitions among long `samples`.

    `known` is the deviation of messages beside their bytes, which is subtracted. Differences of
    neighbours ignore a machine that slowly becomes busier, and a median ignores single stalls. 0
    without repetitions.
    """
    deviations = [
        sqrt(max(0.0, (NORMAL / sqrt(2) * np.median(changes) / each.seconds) ** 2 - of_messages**2))
        for each, of_messages in zip(samples, known or [0.0] * len(samples), strict=True)
        if not each.short
        and (changes := [abs(after - before) for before, after in pairwise(each.times_s)])
    ]
    return float(np.median(deviations)) if deviations else 0.0


def predicted_s(constants: Links, sample: Sample, cores: int | None = None) -> float:
    """Predict the duration of a sample from the fitted constants, in seconds."""
    fixed, messages, bytes_s, byte_s = _row(sample, cores, constants.bucket)
    bytes_s += constants.message_bytes * byte_s
    seconds = fixed * constants.operation_s + messages * constants.alpha_s
    burst_s = sample.buckets * constants.bucket.burst_s
    seconds += max(0.0, bytes_s / constants.share(sample.rate_mbit) - burst_s)
    return max(seconds, _wakings(sample, cores) * constants.wake_s)


def _row(sample: Sample, cores: int | None, bucket: Bucket) -> tuple[float, float, float, float]:
    """Return operations, scaled messages, seconds of all bytes, and of the bytes of a message."""
    messages, oversubscription = _messages(sample), _cpu_oversubscription(sample, cores)
    share = 1 / sample.nodes if sample.collective == "all_reduce" else 1.0
    piece, bytes_per_s = share * sample.nbytes, sample.rate_mbit * BITS_PER_S / 8
    rest = float(last_packet(piece, packet_bytes(bucket.packet_s, bytes_per_s)))
    bytes_s = max(0.0, messages * piece - rest) / bytes_per_s
    count, sent = sample.buckets, messages * _sent_in(sample.collective, piece)
    return count, count * oversubscription * messages, count * bytes_s, count * sent / bytes_per_s


def _wakings(sample: Sample, cores: int | None) -> float:
    """Return consecutive messages. In an all-reduce they scale with the root of ranks per core."""
    oversubscription = (
        _cpu_oversubscription(sample, cores) if sample.collective == "all_reduce" else 1.0
    )
    return sample.buckets * _messages(sample) * sqrt(oversubscription)


def _sent_in(collective: str, piece: float) -> int:
    """Return the number of messages in which `collective` sends a piece of `piece` bytes."""
    return segments(piece) if collective == "all_reduce" else ceil(piece / BETWEEN_CPUS.chunk_bytes)


def _messages(sample: Sample) -> int:
    """Return the number of messages that a collective sends one after the other."""
    return ROUNDS[sample.collective] * (sample.nodes - 1)


def _cpu_oversubscription(sample: Sample, cores: int | None) -> float:
    return max(1.0, sample.nodes / cores) if cores else 1.0


def solved(
    rows: Sequence[tuple[float, ...]], seconds: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients >= 0 with which `rows` give `seconds`, and each row's relative error."""
    matrix, times = np.array(rows), np.array(seconds)
    if len(times) < matrix.shape[1]:
        raise ValueError(f"{matrix.shape[1]} samples at least are needed, got {len(times)}")
    scaled = matrix / times[:, None]
    largest = scaled.max(axis=0)
    count, columns = scaled.shape
    cost = np.concatenate([np.zeros(columns), np.ones(2 * count)])  # of deviations above and below
    equal = np.hstack([scaled / largest, np.eye(count), -np.eye(count)])
    solution = linprog(cost, A_eq=equal, b_eq=np.ones(count)).x[:columns] / largest
    return solution, np.abs(scaled @ solution - 1)
