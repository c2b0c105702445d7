"""COVAP's cells (Meng et al., 2023): tables 1 to 3, 5 and 7, figures 5, 7, 8 and 11.

The table's number of tensors, buckets and intervals come from the models; T_before is the forward
pass and what comes before it, T_comp backward (its section II). A speed-up is over one GPU, times P
(equation 2). A training time is that of DDP, as published, times the ratio of two iterations.
"""

from collections.abc import Callable
from functools import cached_property
from math import ceil
from statistics import fmean

from harness.fidelity import costs, iterations
from harness.fidelity.cells import Cell, Unpredictable, first, rate_mbit
from harness.fidelity.iterations import Group, Job
from harness.fidelity.layers import tensors
from harness.fidelity.predictor import Predictor
from harness.fidelity.timeline import Iteration, Overlap

DENSITY = 0.01  # of Top-k, Random-k, Ok-topk, and of DGC in the authors' code
POWER_RANK = 1
ONE_NODE = 8  # workers
PROFILED, TRAINED = "profiled", "trained"  # runs of tables 1 to 3 and 5, and of table 7
CIFAR = "Cifar-10"
OTHERS = ("Top-k", "DGC", "EFsignSGD", "FP16", "PowerSGD", "Ok-topk")
GATHERING = ("Top-k", "Random-k", "DGC", "EFsignSGD", "Ok-topk")
UNNAMED = "third DNN"  # of figure 5; the third of every table is Bert
OVERLAPS: dict[str, Overlap] = {  # section III.A: which of them wait inside
    "DDPovlp": "overlapped",
    "FP16": "overlapped",
    "Top-k": "overlapped",
    "Random-k": "overlapped",
    "DGC": "blocking",
    "EFsignSGD": "blocking",
    "PowerSGD": "blocking",
    "Ok-topk": "blocking",
}


class Covap(Predictor):
    @cached_property
    def _rules(self) -> dict[str, Callable[[Cell], float]]:
        return {
            "T_before": lambda c: 1e3 * self._job(c).compute.forward_s,
            "T_comp": lambda c: 1e3 * self._job(c).compute.backward_s,
            "T_comm": lambda c: 1e3 * self._iteration(c, "DDPovlp").comm_s,
            "CCR": self._ccr,
            "CCR_before": self._ccr,
            "S_ovlp": lambda c: self._unhidden_s(c) / self._iteration(c, "DDPovlp").total_s,
            "S_LS": lambda c: self._unhidden_s(c) / self._iteration(c, "DDPovlp").compute_s,
            "T_compress": self._overhead_ms,
            "compression_overhead": self._overhead_ms,
            "compression_overhead_approx": self._overhead_ms,
            "T_comm_minus_T_comm_GC": self._saved_ms,
            "communication_reduction_approx": self._saved_ms,
            "net_time_reduction": lambda c: self._saved_ms(c) - self._overhead_ms(c),
            "communication_overhead": lambda c: 1e3 * self._iteration(c).exposed_s,
            "CCR_after_compression": self._ccr_after,
            "S_GC": lambda c: self._unhidden_s(c) / self._serial_s(c),
            "S_GC_ovlp": lambda c: self._unhidden_s(c) / self._iteration(c).total_s,
            "communication_time": self._tensor_ms,
            "share_of_time": self._tensor_share,
            "speedup_vs_1gpu": self._speedup,
            "max_speedup": self._speedup,
            "total_training_time": self._training_s,
            "time_ratio": lambda c: self._versus(c, slower=True),
            "speed_ratio": lambda c: self._versus(c, slower=False),
            "time_gain_min": lambda c: min(self._gains(c)),
            "time_gain_max": lambda c: max(self._gains(c)),
            "speedup_ratio_min": lambda c: min(self._gains(c)),
            "speedup_ratio_max": lambda c: max(self._gains(c)),
            "below_linear_scaling": lambda c: 100 * (1 - self._speedup(c) / self._workers(c)),
            "speedup_growth_8_to_64": self._growth,
            "ratio_where_gain_saturates": lambda c: float(self.interval(_model(c))),
            "compression_overhead_growth_min": lambda c: self._overhead_growth(),
            "compression_overhead_growth_max": lambda c: self._overhead_growth(),
        }

    def interval(self, model: str) -> int:
        """I: the least whole number not below CCR, which is rounded to one decimal first."""
        job = self._job_of(model, PROFILED, None)
        ratio = iterations.dense(job).comm_s / job.compute.backward_s
        return max(1, ceil(round(ratio, 1)))

    def iteration(self, job: Job, method: str, interval: int) -> Iteration:
        """`method` by its name in table 7."""
        if method == "COVAP":
            return iterations.covap(job, interval)
        if method not in OVERLAPS:
            known = ", ".join(OVERLAPS)
            raise Unpredictable(f"method must be one of COVAP, {known}, got {method!r}")
        constant = self.testbed.compress_ns.get(method)
        compress_ns = constant.value if constant else 0.0
        return iterations.per_element(job, compress_ns, self._sender(job, method), OVERLAPS[method])

    def _sender(self, job: Job, method: str) -> Callable[[Group], float]:
        fabric = job.fabric

        def regions(group: Group) -> float:
            """Of the union of all workers' entries each region keeps a P-th."""
            size = costs.sparse_bytes(group, DENSITY)
            return fabric.all_to_all_s(size) + fabric.all_gather_s(size / fabric.workers)

        def sparse(group: Group) -> float:
            return fabric.all_gather_s(costs.sparse_bytes(group, DENSITY))

        senders: dict[str, Callable[[Group], float]] = {
            "DDPovlp": lambda g: fabric.all_reduce_s(costs.dense_bytes(g)),
            "FP16": lambda g: fabric.all_reduce_s(costs.half_bytes(g)),
            "Top-k": sparse,
            "Random-k": sparse,
            "DGC": sparse,
            "EFsignSGD": lambda g: fabric.all_gather_s(costs.sign_bytes(g, packed=False)),
            "PowerSGD": lambda g: iterations.power_collectives_s(job, g, POWER_RANK),
            "Ok-topk": regions,
        }
        return senders[method]

    def _job_of(self, model: str, run: str, workers: int | None, rate: float | None = None) -> Job:
        fabric = self.testbed.fabric(workers, rate)
        return Job(tensors(model), self.testbed.compute(model, run), fabric)

    def _job(self, cell: Cell) -> Job:
        profiled = cell.id in ("covap_table1", "covap_table2", "covap_table3", "covap_text_ii")
        run = PROFILED if profiled or cell.dataset == CIFAR else TRAINED
        return self._job_of(_model(cell), run, self._workers(cell), rate_mbit(cell.network))

    def _workers(self, cell: Cell) -> int:
        return int(cell.workers) if cell.workers.isdigit() else int(self.testbed["workers"])

    def _iteration(self, cell: Cell, method: str | None = None) -> Iteration:
        method = method or _method(cell)
        job = self._job(cell)
        if method == "Random-k" and cell.id == "covap_table3":
            return self._chosen_by_ccr(job)
        told = cell.method.partition("ratio ")[2]  # "COVAP ratio 4"
        return self.iteration(job, method, int(told) if told else self.interval(_model(cell)))

    def _chosen_by_ccr(self, job: Job) -> Iteration:
        """Table III's Random-k: its density was chosen by the CCR that it leaves, which is told."""
        each_s = self.testbed["random_k_ccr"] * job.compute.backward_s
        each_s /= costs.elements(job.tensors)
        compress_ns = self.testbed.compress_ns["Random-k"].value
        return iterations.per_element(
            job, compress_ns, lambda g: each_s * costs.elements(g), OVERLAPS["Random-k"]
        )

    def _unhidden_s(self, cell: Cell) -> float:
        found = self._iteration(cell, "DDPovlp")
        return found.compute_s + found.comm_s

    def _serial_s(self, cell: Cell) -> float:
        found = self._iteration(cell)
        return found.compute_s + found.compress_s + found.comm_s

    def _ccr(self, cell: Cell) -> float:
        return self._iteration(cell, "DDPovlp").comm_s / self._job(cell).compute.backward_s

    def _ccr_after(self, cell: Cell) -> float:
        return self._iteration(cell).comm_s / self._job(cell).compute.backward_s

    def _overhead_ms(self, cell: Cell) -> float:
        return 1e3 * self._iteration(cell).compress_s

    def _saved_ms(self, cell: Cell) -> float:
        """Where the table names no number of workers, what gathers does so on as many as it can."""
        ours = cell
        if _method(cell) in GATHERING and not cell.workers:
            ours = cell._replace(workers=f"{self.testbed['most_gathered']:.0f}")
        return 1e3 * (self._iteration(cell, "DDPovlp").comm_s - self._iteration(ours).comm_s)

    def _tensor_ms(self, cell: Cell) -> float:
        """An all-reduce of as many elements as the table says."""
        if cell.method == "tensor total":
            return sum(self._tensor_ms(each) for each in self._bucket_cells(cell))
        told = first(self.cells, id=cell.id, method=cell.method, metric="elements")
        if told is None or told.value is None:
            raise Unpredictable(f"no elements of {cell.method!r} among the cells")
        return 1e3 * self.testbed.fabric().all_reduce_s(costs.FLOAT_BYTES * told.value)

    def _tensor_share(self, cell: Cell) -> float:
        return 100 * self._tensor_ms(cell) / self._tensor_ms(cell._replace(method="tensor total"))

    def _bucket_cells(self, cell: Cell) -> list[Cell]:
        return [
            each
            for each in self.cells
            if (each.id, each.metric) == (cell.id, "elements") and each.method != "tensor total"
        ]

    def _speedup(self, cell: Cell) -> float:
        found = self._iteration(cell)
        return self._workers(cell) * found.compute_s / found.total_s

    def _training_s(self, cell: Cell) -> float:
        """Unpredictable without DDP's time: how many iterations there are is not published."""
        told = first(self.cells, method="DDPovlp", model=cell.model, metric=cell.metric)
        if told is None or told.value is None:
            raise Unpredictable(f"no total_training_time of DDPovlp and {cell.model} to scale")
        ratio = self._iteration(cell).total_s / self._iteration(cell, "DDPovlp").total_s
        return told.value * ratio

    def _versus(self, cell: Cell, slower: bool) -> float:
        one, other = (self._iteration(cell, name).total_s for name in cell.method.split(" vs "))
        return one / other if slower else other / one

    def _gains(self, cell: Cell) -> list[float]:
        """Every other method's time over COVAP's; without a model, of the first table's."""
        cell = cell if cell.model else cell._replace(model="ResNet-101")
        ours = self._iteration(cell, "COVAP").total_s
        return [self._iteration(cell, name).total_s / ours for name in OTHERS]

    def _growth(self, cell: Cell) -> float:
        """How much faster the node's 8 times as many workers are, mean over methods."""
        growths = []
        for method in cell.method.split(","):
            many, few = (
                workers / self._iteration(cell._replace(workers=str(workers)), method).total_s
                for workers in (int(self.testbed["workers"]), ONE_NODE)
            )
            growths.append(many / few)
        return fmean(growths)

    def _overhead_growth(self) -> float:
        """By the element, from ResNet-101 to VGG-19: the same for all."""
        sizes = [costs.elements(tensors(model)) for model in ("ResNet-101", "VGG-19")]
        return sizes[1] / sizes[0]


def _model(cell: Cell) -> str:
    name = cell.model.partition(" (")[0]  # "VGG-19 (by order)"
    return "Bert" if name == UNNAMED else name


def _method(cell: Cell) -> str:
    return {"DDP": "DDPovlp"}.get(cell.method, cell.method.partition(" ")[0])
