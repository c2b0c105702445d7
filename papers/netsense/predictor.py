"""NetSenseML's cells: throughput in samples/s over static bottlenecks (tables 1 and 2).

AllReduce is torch's DDP; TopK-0.1 and NetSenseML are hooks that wait. NetSenseML's density is the
floor of its Algorithm 1, where its controller stays (the measured transfer time is its own round
trip, so the product of bandwidth and delay is about the smallest payload).
"""

from collections.abc import Callable
from functools import cached_property

from harness.fidelity.cells import Cell, Unpredictable, rate_mbit
from harness.fidelity.predictor import Predictor
from harness.fidelity.replays import Iteration, ReplayedMethod, ReplayJob, iteration

CLASSES = 100
SPARSE = ReplayedMethod("topk.TopK", (("index_dtype", "int64"),), hooks="wait")
TOP_K, TOP_K_DENSITY = "TopK-0.1", 0.1
TABLES = {"ResNet18": ("200Mbps", "500Mbps", "800Mbps"), "VGG16": ("2.5Gbps", "5Gbps", "10Gbps")}


class NetSenseMl(Predictor):
    @cached_property
    def _rules(self) -> dict[str, Callable[[Cell], float | None]]:
        return {
            "training_throughput": lambda c: self.throughput(c.model, c.network, c.method),
            "throughput_gain_min": lambda c: min(self._gains()),
            "throughput_gain_max": lambda c: max(self._gains()),
        }

    def iteration(self, model: str, network: str, method: str) -> Iteration:
        """`network` is a rate with its unit, such as 500Mbps."""
        job = ReplayJob(
            model,
            self.testbed.compute(model),
            self.testbed.cluster(rate_mbit=rate_mbit(network)),
            CLASSES,
        )
        if method == "AllReduce":
            return iteration(job, ReplayedMethod("dense.Dense"))
        if method == TOP_K:
            return iteration(job, SPARSE._replace(density=TOP_K_DENSITY))
        if method == "NetSenseML":  # its overhead is the iteration's, before anything is sent
            forward_s = job.compute.forward_s + self.testbed["overhead_s"]
            job = job._replace(compute=job.compute._replace(forward_s=forward_s))
            return iteration(job, SPARSE._replace(density=self.testbed["density"]))
        raise Unpredictable(f"method must be AllReduce, TopK-0.1 or NetSenseML, got {method!r}")

    def throughput(self, model: str, network: str, method: str) -> float:
        """Samples/s of all workers."""
        batch = self.testbed["workers"] * self.testbed["batch"]
        return batch / self.iteration(model, network, method).total_s

    def _gains(self) -> list[float]:
        """NetSenseML's over TopK-0.1's, in both tables."""
        return [
            self.throughput(model, network, "NetSenseML") / self.throughput(model, network, TOP_K)
            for model, networks in TABLES.items()
            for network in networks
        ]
