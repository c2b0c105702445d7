"""Rows that others measured, predicted: the collective or the step is run on the testbed.

Gloo's all-reduce is a ring in segments; its broadcast a binomial tree of whole messages, all sends
of a rank at once (gloo/broadcast.cc); its reduce a ring, in which every rank sends all segments but
two, and then a gather to the root (gloo/reduce.cc). NCCL's are pipelined rings. DDP's step is a
replay of the model, with the broadcast of its buffers that precedes every forward by default.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

import numpy as np

from harness.fidelity.bench import Bench
from harness.fidelity.cells import Unpredictable
from harness.fidelity.replays import ReplayedMethod, ReplayJob, iteration
from harness.fidelity.rows import Measurement
from harness.fidelity.testbed import Cluster, Compute
from harness.virtual.costs import Costs
from harness.virtual.network import Simulated
from harness.virtual.traffic import Traffic

EVERY = re.compile(r"H=(\d{1,6})$")  # local steps between exchanges, as rows name them


@dataclass(frozen=True)
class RowPredictor:
    """Predicts rows of one bench."""

    bench: Bench

    def predict(self, row: Measurement) -> float:
        """A row's figure in its unit; Unpredictable for another metric or operation."""
        if row.metric == "time_ms":
            return 1000 * self._collective_s(row)
        if row.metric == "rate_mbit":
            return self._bytes(row) * 8e-6 / self._collective_s(row)
        if row.metric == "compute_s":
            return self.bench["compute_s"]
        if row.metric == "blocked_s":
            return self._blocked_s(row)
        step_s = self.bench["compute_s"] + self._blocked_s(row) / self._every(row)
        if row.metric == "step_s":
            return step_s
        if row.metric == "compute_utilisation":
            return self.bench["compute_s"] / step_s
        raise Unpredictable(f"metric must be a time, a rate or a utilisation, got {row.metric!r}")

    def _every(self, row: Measurement) -> int:
        found = EVERY.search(row.method)
        return int(found[1]) if found else 1

    def _blocked_s(self, row: Measurement) -> float:
        return self._step_s(row) if row.operation.startswith("DDP") else self._collective_s(row)

    def _bytes(self, row: Measurement) -> int:
        nbytes = row.bytes or self.bench.bytes
        if not nbytes:
            raise Unpredictable("a row or its testbed must tell the bytes")
        return nbytes

    def _collective_s(self, row: Measurement) -> float:
        run = self._operations.get(row.operation.split()[0])
        if run is None:
            known = ", ".join(self._operations)
            raise Unpredictable(f"operation must begin with one of {known}, got {row.operation!r}")
        return float(run(self._costs(row), self._bytes(row), row.workers))

    @cached_property
    def _operations(self) -> dict:
        trees = self.bench.backend == "gloo"
        return {
            "all_reduce": lambda costs, nbytes, n: costs.all_reduce(0.0, nbytes, n),
            "broadcast": tree_broadcast_s if trees else _pipelined_s,
            "reduce": gathered_reduce_s if trees else _pipelined_s,
            "send": lambda costs, nbytes, n: costs.send(0.0, [[0, nbytes], [0, 0]]),
        }

    def _costs(self, row: Measurement) -> Costs:
        network = Simulated(**self.bench.settings_of(row))
        return network.costs(self.bench.link_of(row), row.workers, 1)

    def _step_s(self, row: Measurement) -> float:
        """Return the time that a step of DDP takes beyond its computation."""
        compute_s, forward = self.bench["compute_s"], self.bench.forward
        compute = Compute(forward * compute_s, (1 - forward) * compute_s, None)
        told = self.bench.settings()
        settings = tuple(
            (k, tuple(v.items()) if isinstance(v, dict) else v) for k, v in told.items()
        )
        cluster = Cluster(row.workers, 1, self.bench.rate_of(row), 1.0, 0.0, settings)
        job = ReplayJob(self.bench.model, compute, cluster)
        buffers_s = 0.0
        if buffers := round(self.bench["buffers_bytes"]):
            buffers_s = self._costs(row).broadcast(0.0, buffers, row.workers)
        return iteration(job, ReplayedMethod("dense.Dense")).total_s - compute_s + buffers_s


def _pipelined_s(costs: Costs, nbytes: int, workers: int) -> float:
    return costs.broadcast(0.0, nbytes, workers)


def tree_broadcast_s(costs: Costs, nbytes: int, workers: int) -> float:
    """Seconds of a binomial tree of whole messages: who has them sends to all its children."""
    traffic, last_s = Traffic(costs), 0.0
    sending = [(traffic.begin(0.0, 0, child, nbytes), child) for child in _children(0, workers)]
    while sending:
        now_s = traffic.next_s()
        traffic.advance(now_s)
        there = [(flow, rank) for flow, rank in sending if flow.end_s is not None]
        sending = [(flow, rank) for flow, rank in sending if flow.end_s is None]
        for flow, rank in there:
            assert flow.end_s is not None
            last_s = max(last_s, flow.end_s)
            sending += [
                (traffic.begin(max(now_s, flow.end_s), rank, child, nbytes), child)
                for child in _children(rank, workers)
            ]
    return last_s


def gathered_reduce_s(costs: Costs, nbytes: int, workers: int) -> float:
    """Seconds of a ring reduce-scatter in segments, and of all parts' way to rank 0."""
    scattered_s = costs.reduce_scatter(0.0, nbytes, workers, segmented=True)
    sizes = np.zeros((workers, workers), dtype=int)
    sizes[1:, 0] = nbytes // workers
    return costs.send(scattered_s, sizes.tolist())


def _children(rank: int, workers: int) -> list[int]:
    """Whom a rank sends to in gloo's tree, from 0: its number and one higher bit are theirs."""
    bits = range(rank.bit_length(), ceil(log2(workers)))
    return [child for bit in bits if (child := rank | 1 << bit) < workers]
