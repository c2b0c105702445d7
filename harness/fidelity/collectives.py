"""Predict benchmark rows by running their collective or DDP step in virtual time.

`harness.config.backends` defines how each backend sends. A DDP step replays the model after the
broadcast of its buffers, as by default this broadcast precedes every forward.
"""

import re
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from harness.config.backends import BETWEEN_CPUS
from harness.fidelity.bench import Bench, Cluster, Compute
from harness.fidelity.measurement import Measurement, Unpredictable
from harness.fidelity.replays import ReplayedMethod, ReplayJob, iteration
from harness.virtual.costs import Costs
from harness.virtual.network import Simulated
from harness.virtual.traffic import Traffic

EVERY = re.compile(r"H=(\d{1,6})$")  # local steps between exchanges, at the end of a row's method
OPERATIONS = ("all_reduce", "broadcast", "reduce", "send")


@dataclass(frozen=True)
class RowPredictor:
    """Predictor of the benchmark rows of one bench."""

    bench: Bench

    def predict(self, row: Measurement) -> float:
        """Predict a row in its unit; raise `Unpredictable` for an unknown metric or operation."""
        if row.metric == "time_ms":
            return 1000 * self._collective_s(row)
        if row.metric == "rate_mbit":
            return self._bytes(row) * 8e-6 / self._collective_s(row)
        compute_s = self.bench.constants.get("compute_s", 0.0)
        if row.metric == "compute_s":
            return compute_s
        step = row.operation.startswith("DDP")
        blocked_s = self._step_s(row) if step else self._collective_s(row)
        if row.metric == "blocked_s":
            return blocked_s
        every = EVERY.search(row.method)
        step_s = compute_s + blocked_s / (int(every[1]) if every else 1)
        if row.metric == "step_s":
            return step_s
        if row.metric == "compute_utilisation":
            return compute_s / step_s
        raise Unpredictable(f"metric must be a time, a rate or a utilisation, got {row.metric!r}")

    def _bytes(self, row: Measurement) -> int:
        nbytes = row.bytes or self.bench.bytes
        if not nbytes:
            raise Unpredictable("a row or its testbed must give the bytes")
        return nbytes

    def _collective_s(self, row: Measurement) -> float:
        name, workers = row.operation.split()[0], int(row.workers)
        if name not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise Unpredictable(f"operation must begin with one of {known}, got {row.operation!r}")
        costs, nbytes = self._costs(row), self._bytes(row)
        if name == "all_reduce":
            return float(costs.all_reduce(0.0, nbytes, workers))
        if name == "send":
            return float(costs.send(0.0, [[0, nbytes], [0, 0]]))
        if self.bench.backend != BETWEEN_CPUS.name:
            return float(costs.broadcast(0.0, nbytes, workers))
        run = tree_broadcast_s if name == "broadcast" else gathered_reduce_s
        return float(run(costs, nbytes, workers))

    def _costs(self, row: Measurement) -> Costs:
        network = Simulated(**self.bench.settings(row))
        return network.costs(self.bench.link_of(row), int(row.workers), 1)

    def _step_s(self, row: Measurement) -> float:
        """Return the seconds that a DDP step takes beyond its computation."""
        constants, workers = self.bench.constants, int(row.workers)
        compute_s, forward = constants.get("compute_s", 0.0), self.bench.forward
        compute = Compute(forward * compute_s, (1 - forward) * compute_s, None)
        settings = tuple(
            (name, tuple(value.items()) if isinstance(value, dict) else value)
            for name, value in self.bench.settings().items()
        )
        cluster = Cluster(workers, 1, self.bench.rate_of(row), 1.0, 0.0, settings)
        job = ReplayJob(self.bench.model, compute, cluster)
        step_s = iteration(job, ReplayedMethod("dense.Dense")).total_s - compute_s
        if buffers := round(constants.get("buffers_bytes", 0.0)):
            step_s += self._costs(row).broadcast(0.0, buffers, workers)
        return step_s


def tree_broadcast_s(costs: Costs, nbytes: int, workers: int) -> float:
    """Return seconds of a binomial-tree broadcast; a rank sends to all its children at once."""
    traffic, last_s = Traffic(costs), 0.0
    sending = [(traffic.begin(0.0, 0, child, nbytes), child) for child in _children(0, workers)]
    while sending:
        now_s = traffic.next_s()
        traffic.advance(now_s)
        arrived = [(flow, rank) for flow, rank in sending if flow.end_s is not None]
        sending = [(flow, rank) for flow, rank in sending if flow.end_s is None]
        for flow, rank in arrived:
            assert flow.end_s is not None
            last_s = max(last_s, flow.end_s)
            sending += [
                (traffic.begin(max(now_s, flow.end_s), rank, child, nbytes), child)
                for child in _children(rank, workers)
            ]
    return last_s


def gathered_reduce_s(costs: Costs, nbytes: int, workers: int) -> float:
    """Return the seconds of a segmented ring reduce-scatter and a gather of all parts to rank 0."""
    scattered_s = costs.reduce_scatter(0.0, nbytes, workers, segmented=True)
    sizes = np.zeros((workers, workers), dtype=int)
    sizes[1:, 0] = nbytes // workers
    return costs.send(scattered_s, sizes.tolist())


def _children(rank: int, workers: int) -> list[int]:
    """Return the children of a rank in the binomial tree: its number with one higher bit set."""
    bits = range(rank.bit_length(), ceil(log2(workers)))
    return [child for bit in bits if (child := rank | 1 << bit) < workers]
