"""Predict NetSenseML's throughput in samples/s over static bottlenecks (tables 1 and 2).

AllReduce is torch's DDP. TopK-0.1 and NetSenseML are hooks that wait. NetSenseML's density is the
floor of its Algorithm 1: the transfer time that its controller measures is its own round trip, so
the product of bandwidth and delay stays near the smallest payload.
"""

from collections.abc import Callable
from functools import cached_property

from harness.fidelity.measurement import Measurement, Unpredictable, rate_mbit
from harness.fidelity.predictor import Predictor
from harness.fidelity.replays import ReplayedMethod, ReplayJob, iteration

CLASSES = 100
SPARSE = ReplayedMethod("topk.TopK", (("index_dtype", "int64"),), hooks="wait")
TOP_K, TOP_K_DENSITY = "TopK-0.1", 0.1
TABLES = {"ResNet18": ("200Mbps", "500Mbps", "800Mbps"), "VGG16": ("2.5Gbps", "5Gbps", "10Gbps")}


class NetSenseMl(Predictor):
    paper, title = "netsenseml", "NetSenseML"
    compares = {t: "training_throughput" for t in ("netsense_table1", "netsense_table2")}

    @cached_property
    def _rules(self) -> dict[str, Callable[[Measurement], float | None]]:
        return {
            "training_throughput": lambda c: self._throughput(c.model, c.network, c.method),
            "throughput_gain_min": lambda _: min(self._gains()),
            "throughput_gain_max": lambda _: max(self._gains()),
        }

    def _throughput(self, model: str, network: str, method: str) -> float:
        """Predict samples/s of all workers, at a rate such as 500Mbps; `Unpredictable` if not."""
        compute, method_here = self.bench.compute(model), ReplayedMethod("dense.Dense")
        if method == TOP_K:
            method_here = SPARSE._replace(density=TOP_K_DENSITY)
        elif method == "NetSenseML":  # its overhead precedes all sending
            compute = compute._replace(forward_s=compute.forward_s + self.bench["overhead_s"])
            method_here = SPARSE._replace(density=self.bench["density"])
        elif method != "AllReduce":
            raise Unpredictable(f"method must be AllReduce, {TOP_K} or NetSenseML, got {method!r}")
        cluster = self.bench.cluster(rate_mbit=rate_mbit(network))
        step_s = iteration(ReplayJob(model, compute, cluster, CLASSES), method_here).total_s
        return self.bench["workers"] * self.bench["batch"] / step_s

    def _gains(self) -> list[float]:
        """Return NetSenseML's throughput over TopK-0.1's for every cell of both tables."""
        return [
            self._throughput(model, network, "NetSenseML") / self._throughput(model, network, TOP_K)
            for model, networks in TABLES.items()
            for network in networks
        ]


PREDICTOR = NetSenseMl
