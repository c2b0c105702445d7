"""Predict COVAP's timing cells (Meng et al., 2023): tables 1 to 3, 5 and 7, figures 5, 7, 8, 11.

Numbers of tensors, buckets and intervals follow from the models. T_before is the forward pass and
all before it, T_comp is backward (section II). A speed-up is over one GPU, times P (equation 2). A
training time is the published one of DDP times the ratio of two iterations.
"""

from collections.abc import Callable
from functools import cached_property
from math import ceil
from operator import truediv
from statistics import fmean

from harness.fidelity import replays
from harness.fidelity.layers import parameters
from harness.fidelity.measurement import Measurement, Unpredictable, first, rate_mbit
from harness.fidelity.predictor import Predictor
from harness.fidelity.replays import Iteration, ReplayedMethod, ReplayJob, all_reduce_s

DENSITY = 0.01  # of Top-k, Random-k, Ok-topk, and of DGC in the authors' code
POWER_RANK = 1
FLOAT_BYTES = 4
ONE_NODE = 8  # workers
PROFILED, TRAINED = "profiled", "trained"  # runs of tables 1 to 3 and 5, and of table 7
OF_PROFILED = ("covap_table1", "covap_table2", "covap_table3", "covap_text_ii")
CIFAR = "Cifar-10"
OTHERS = ("Top-k", "DGC", "EFsignSGD", "FP16", "PowerSGD", "Ok-topk")
GATHERING = ("Top-k", "Random-k", "DGC", "EFsignSGD", "Ok-topk")
UNNAMED = "third DNN"  # of figure 5; the third model of every table is Bert
WIDE = ("index_dtype", "int64")  # positions, as torch.topk returns them
METHODS = {  # section III.A says which of them wait inside a hook; DGC sends what Top-k does
    "DDPovlp": ReplayedMethod("dense.Dense"),
    "FP16": ReplayedMethod("cast.Cast"),
    "Top-k": ReplayedMethod("topk.TopK", (WIDE,), DENSITY),
    "Random-k": ReplayedMethod("randomk.RandomK", (WIDE, ("shared", False)), DENSITY),
    "DGC": ReplayedMethod("topk.TopK", (WIDE,), DENSITY, hooks="wait"),
    "EFsignSGD": ReplayedMethod("ef_signsgd.EFSignSGD", hooks="wait"),
    "PowerSGD": ReplayedMethod(
        "powersgd.PowerSGD", (("rank", POWER_RANK), ("vectors_apart", True))
    ),
    "Ok-topk": ReplayedMethod("oktopk.OkTopK", (WIDE,), DENSITY, part=64),
}


class Covap(Predictor):
    paper, title = "covap", "COVAP"
    compares = {"covap_table7": "speedup_vs_1gpu"}

    @cached_property
    def _rules(self) -> dict[str, Callable[[Measurement], float]]:
        return {
            "T_before": lambda c: 1e3 * self._job(c).compute.forward_s,
            "T_comp": lambda c: 1e3 * self._job(c).compute.backward_s,
            "T_comm": lambda c: 1e3 * self._iteration(c, "DDPovlp").comm_s,
            "CCR": lambda c: self._ccr(c, "DDPovlp"),
            "CCR_before": lambda c: self._ccr(c, "DDPovlp"),
            "S_ovlp": lambda c: self._unhidden_s(c) / self._iteration(c, "DDPovlp").total_s,
            "S_LS": lambda c: self._unhidden_s(c) / self._iteration(c, "DDPovlp").compute_s,
            "T_compress": self._overhead_ms,
            "compression_overhead": self._overhead_ms,
            "compression_overhead_approx": self._overhead_ms,
            "T_comm_minus_T_comm_GC": self._saved_ms,
            "communication_reduction_approx": self._saved_ms,
            "net_time_reduction": lambda c: self._saved_ms(c) - self._overhead_ms(c),
            "communication_overhead": lambda c: 1e3 * self._iteration(c).exposed_s,
            "CCR_after_compression": self._ccr,
            "S_GC": lambda c: self._unhidden_s(c) / self._serial_s(c),
            "S_GC_ovlp": lambda c: self._unhidden_s(c) / self._iteration(c).total_s,
            "communication_time": self._tensor_ms,
            "share_of_time": self._tensor_share,
            "speedup_vs_1gpu": self._speedup,
            "max_speedup": self._speedup,
            "total_training_time": self._training_s,
            "time_ratio": lambda c: truediv(*self._both_s(c)),
            "speed_ratio": lambda c: truediv(*reversed(self._both_s(c))),
            "time_gain_min": lambda c: min(self._gains(c)),
            "time_gain_max": lambda c: max(self._gains(c)),
            "speedup_ratio_min": lambda c: min(self._gains(c)),
            "speedup_ratio_max": lambda c: max(self._gains(c)),
            "below_linear_scaling": lambda c: 100 * (1 - self._speedup(c) / self._workers(c)),
            "speedup_growth_8_to_64": self._growth,
            "ratio_where_gain_saturates": lambda c: float(self._interval(_model(c))),
            "compression_overhead_growth_min": lambda _: self._overhead_growth(),
            "compression_overhead_growth_max": lambda _: self._overhead_growth(),
        }

    def _interval(self, model: str) -> int:
        """Return I, the interval: CCR rounded to one decimal, then rounded up; at least 1."""
        job = self._job_of(model, PROFILED, None)
        ratio = self._replayed(job, "DDPovlp", 1).comm_s / job.compute.backward_s
        return max(1, ceil(round(ratio, 1)))

    def _replayed(self, job: ReplayJob, method: str, interval: int) -> Iteration:
        """Return the replayed iteration of `method`, by its name in table 7."""
        if method == "EFsignSGD":
            job = job._replace(cluster=job.cluster.slower(self.bench["sign_bytes"]))
        return replays.iteration(job, self._method(method, interval))

    def _method(self, name: str, interval: int) -> ReplayedMethod:
        """Return the method to replay; raise `Unpredictable` if the published name is unknown."""
        if name == "COVAP":
            cost = self.bench.cost("covap")
            return ReplayedMethod("covap.COVAP", (), 1 / interval, cost, turn=interval)
        if name not in METHODS:
            known = ", ".join(METHODS)
            raise Unpredictable(f"method must be one of COVAP, {known}, got {name!r}")
        file = "dgc" if name == "DGC" else METHODS[name].target.partition(".")[0]
        return METHODS[name]._replace(cost=self.bench.cost(file))

    def _job_of(
        self, model: str, run: str, workers: int | None, rate: float | None = None
    ) -> ReplayJob:
        cluster = self.bench.cluster(workers, rate)
        return ReplayJob(model, self.bench.compute(model, run), cluster)

    def _job(self, cell: Measurement) -> ReplayJob:
        run = PROFILED if cell.id in OF_PROFILED or cell.dataset == CIFAR else TRAINED
        return self._job_of(_model(cell), run, self._workers(cell), rate_mbit(cell.network))

    def _workers(self, cell: Measurement) -> int:
        return int(cell.workers) if cell.workers.isdigit() else int(self.bench["workers"])

    def _iteration(self, cell: Measurement, method: str | None = None) -> Iteration:
        method = method or _method_of(cell)
        job = self._job(cell)
        if method == "Random-k" and cell.id == "covap_table3":
            return self._chosen_by_ccr(job)
        interval = cell.method.partition("ratio ")[2]  # "COVAP ratio 4"
        return self._replayed(job, method, int(interval or self._interval(_model(cell))))

    def _chosen_by_ccr(self, job: ReplayJob) -> Iteration:
        """Replay table III's Random-k at the density that leaves the published CCR."""
        method = self._method("Random-k", 1)
        once_s, twice_s = (
            replays.iteration(job, method._replace(density=times * DENSITY)).comm_s
            for times in (1, 2)
        )
        wanted_s = self.bench["random_k_ccr"] * job.compute.backward_s
        density = DENSITY * (1 + (wanted_s - once_s) / (twice_s - once_s))  # time is linear in it
        return replays.iteration(job, method._replace(density=density))

    def _unhidden_s(self, cell: Measurement) -> float:
        found = self._iteration(cell, "DDPovlp")
        return found.compute_s + found.comm_s

    def _serial_s(self, cell: Measurement) -> float:
        found = self._iteration(cell)
        return found.compute_s + found.compress_s + found.comm_s

    def _ccr(self, cell: Measurement, method: str | None = None) -> float:
        return self._iteration(cell, method).comm_s / self._job(cell).compute.backward_s

    def _overhead_ms(self, cell: Measurement) -> float:
        return 1e3 * self._iteration(cell).compress_s

    def _saved_ms(self, cell: Measurement) -> float:
        """Return the communication time that a method saves, in ms.

        If the cell names no number of workers, a gathering method runs on the most it can.
        """
        ours = cell
        if _method_of(cell) in GATHERING and not cell.workers:
            ours = cell._replace(workers=f"{self.bench['most_gathered']:.0f}")
        return 1e3 * (self._iteration(cell, "DDPovlp").comm_s - self._iteration(ours).comm_s)

    def _tensor_ms(self, cell: Measurement) -> float:
        """Return the ms to all-reduce the table's elements; `Unpredictable` if none are listed."""
        if cell.method == "tensor total":
            return sum(
                self._tensor_ms(each)
                for each in self.cells
                if (each.id, each.metric) == (cell.id, "elements") and each.method != cell.method
            )
        elements = first(self.cells, id=cell.id, method=cell.method, metric="elements")
        if elements is None or elements.value is None:
            raise Unpredictable(f"no elements of {cell.method!r} among the cells")
        return 1e3 * all_reduce_s(self.bench.cluster(), FLOAT_BYTES * elements.value)

    def _tensor_share(self, cell: Measurement) -> float:
        return 100 * self._tensor_ms(cell) / self._tensor_ms(cell._replace(method="tensor total"))

    def _speedup(self, cell: Measurement) -> float:
        found = self._iteration(cell)
        return self._workers(cell) * found.compute_s / found.total_s

    def _training_s(self, cell: Measurement) -> float:
        """Scale DDP's published training time to this method; raise `Unpredictable` without one."""
        ddp = first(self.cells, method="DDPovlp", model=cell.model, metric=cell.metric)
        if ddp is None or ddp.value is None:
            raise Unpredictable(f"no total_training_time of DDPovlp and {cell.model} to scale")
        ratio = self._iteration(cell).total_s / self._iteration(cell, "DDPovlp").total_s
        return ddp.value * ratio

    def _both_s(self, cell: Measurement) -> list[float]:
        """Return the iteration times of both methods of "COVAP vs DDPovlp"."""
        return [self._iteration(cell, name).total_s for name in cell.method.split(" vs ")]

    def _gains(self, cell: Measurement) -> list[float]:
        """Return other methods' step time over COVAP's; a cell without a model means ResNet-101."""
        cell = cell if cell.model else cell._replace(model="ResNet-101")
        ours = self._iteration(cell, "COVAP").total_s
        return [self._iteration(cell, name).total_s / ours for name in OTHERS]

    def _growth(self, cell: Measurement) -> float:
        """Return the growth of the speed-up from one node to all, mean over methods."""
        growths = []
        for method in cell.method.split(","):
            many, few = (
                workers / self._iteration(cell._replace(workers=str(workers)), method).total_s
                for workers in (int(self.bench["workers"]), ONE_NODE)
            )
            growths.append(many / few)
        return fmean(growths)

    def _overhead_growth(self) -> float:
        """Return VGG-19's elements over ResNet-101's: compression time grows by this factor."""
        return parameters("VGG-19") / parameters("ResNet-101")


def _model(cell: Measurement) -> str:
    name = cell.model.partition(" (")[0]  # "VGG-19 (by order)"
    return "Bert" if name == UNNAMED else name


def _method_of(cell: Measurement) -> str:
    return {"DDP": "DDPovlp"}.get(cell.method, cell.method.partition(" ")[0])


PREDICTOR = Covap
