"""Controllers against a link, without training: progress per step is density^ELASTICITY.

Four workers with 8-byte entries in an all-gather. A step computes for 0.1 s, two thirds of it
backward, which hands over four buckets. An exchange has latency, a rate that the profile decides
and noise; now and then it is three times slower.
"""

import random
from typing import Any, NamedTuple

from profiles.base import Profile, Way
from tests.controllers.observations import seen

ELASTICITY = 0.09  # of steps to a target in the density
WORKERS = 4
ELEMENTS = 40_000
COMPUTE_S, BACKWARD_S, COMPRESS_S = 0.1, 0.067, 0.003
BUCKETS = ((0.1, 0.41), (0.53, 0.46), (0.97, 0.12), (1.0, 0.01))  # ready after, share of bytes
LATENCY_S = 0.001  # of a bucket
NOISE, SLOW, SLOWER = 0.08, 0.02, 3.0  # deviation; share of exchanges; by how much
WAYS: tuple[Way, Way] = ("up", "down")

DENSE_BYTES = 4 * ELEMENTS
RING_BYTES = 2 * (WORKERS - 1) * DENSE_BYTES // WORKERS  # of an all-reduce, each way


def mbit(ccr: float) -> float:
    """Rate of links on which a dense all-reduce takes `ccr` times as long as computing."""
    return RING_BYTES / (ccr * COMPUTE_S) / 125_000


class Exchanged(NamedTuple):
    comm_s: float
    exposed_s: float


def exchange(profile: Profile, begin_s: float, received: float, slowness: float) -> Exchanged:
    """Buckets one after the other, at the rate of the slowest link when each begins."""
    end_of_backward = begin_s + COMPUTE_S
    now = begin_s + COMPUTE_S - BACKWARD_S
    comm_s = exposed_s = 0.0
    for ready, share in BUCKETS:
        now = max(now, begin_s + COMPUTE_S - (1 - ready) * BACKWARD_S)
        now += COMPRESS_S * share
        links = [profile.link(now, node, way) for node in range(WORKERS) for way in WAYS]
        rate = min(link.rate_mbit for link in links) * 125_000 / (1 + profile.flows(now))
        took_s = LATENCY_S + slowness * share * received / rate
        exposed_s += max(0.0, now + took_s - max(now, end_of_backward))
        comm_s += took_s
        now += took_s
    return Exchanged(comm_s, exposed_s)


def seconds_per_progress(
    controller: Any, profile: Profile, seed: int, progress: float = 250.0
) -> float:
    """Emulated seconds until so many dense steps' worth of progress, over it."""
    source = random.Random(f"loop {seed}")
    now, done, step = 0.0, 0.0, 0
    density = controller.density(None)
    while done < progress:
        slowness = source.lognormvariate(0, NOISE) * (SLOWER if source.random() < SLOW else 1)
        compute_s = COMPUTE_S * source.gauss(1, 0.03)
        kept = max(1, int(density * ELEMENTS))
        received = 8 * kept * (WORKERS - 1)
        took = exchange(profile, now, received, slowness)
        now += compute_s + took.exposed_s
        done += density**ELASTICITY
        observed = seen(step, time_s=now, density=density, comm_s=took.comm_s,
                        exposed_s=took.exposed_s, compress_s=COMPRESS_S, compute_s=compute_s,
                        backward_s=BACKWARD_S, overlap_window_s=(1 - BUCKETS[0][0]) * BACKWARD_S,
                        sent_bytes=received, received_bytes=received, dense_bytes=DENSE_BYTES,
                        workers=WORKERS)  # fmt: skip
        density = controller.density(observed)
        step += 1
    return now / done
