"""ACP-SGD's cells (Zhang et al., 2023): figures 2, 3, 5 and 9 to 13, table III.

From its section V.D on "Power-SGD" is Power-SGD*, torch's hook; before, the original. A method may
say more than its name: "ACP vs S-SGD bs=32" are two, each at batch 32; `bs16->32`, `8->64` in the
column of workers, and `r32->r256` are the same method twice.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean
from typing import Any

from harness.fidelity.cells import Cell, Unpredictable
from harness.fidelity.layers import tensors
from harness.fidelity.predictor import Predictor
from harness.fidelity.replays import (
    ALL_MB,
    Iteration,
    ReplayedMethod,
    ReplayJob,
    all_reduce_s,
    iteration,
)
from harness.fidelity.testbed import Testbed
from papers.acp_sgd.runs import BUFFER_MB, Run, change, option, pair, rank_of, run_of

MODELS = ("ResNet-50", "ResNet-152", "BERT-Base", "BERT-Large")
SWEPT = ("ResNet-50", "BERT-Base")  # of figures 12 and 13
FUSED = ("ResNet-152", "BERT-Large")  # of figure 9
TOP_K_DENSITY = 0.001
EACH_MB = 0.0  # every tensor is a bucket
NOTHING_S = 1e-9
FLOAT_BYTES, KIB = 4, 1024
PACKED = ("Sign-SGD", "Top-k SGD")
TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "S-SGD": ("dense.Dense", {}),
    "Sign-SGD": ("signsgd.SignSGD", {}),
    "Top-k SGD": ("topk.TopK", {"index_dtype": "int64"}),
    "Power-SGD": ("powersgd.PowerSGD", {"rank": None}),
    "Power-SGD*": ("powersgd.PowerSGD", {"rank": None, "vectors_apart": True}),
    "ACP-SGD": ("acp_sgd.ACPSGD", {"rank": None}),
}


class AcpSgd(Predictor):
    def __init__(self, testbed: Testbed, cells: Sequence[Cell]) -> None:
        super().__init__(testbed, cells)
        self._known: dict[Run, Iteration] = {}

    @cached_property
    def _rules(self) -> dict[str, Callable[[Cell], float | None]]:
        return {
            "iteration_time_mean": lambda c: 1e3 * self.iteration(run_of(c, c.method)).total_s,
            "iteration_time_ratio": self._slower_or_growth,
            "speedup": self._speedup,
            "speedup_mean": self._speedup_mean,
            "speedup_max": self._speedup_max,
            "slowdown": self._slowdown,
            "slowdown_mean": self._fusion_change,
            "slowdown_vs_no_WFBP": self._slowdown_alone,
            "improvement": self._fusion_change,
            "speed_advantage_min": lambda c: min(self._advantages(c)),
            "speed_advantage_max": lambda c: max(self._advantages(c)),
            "compression_time_ratio": lambda c: self._ratio(c, "compress_s"),
            "communication_speedup": lambda c: 1 / self._ratio(c, "comm_s"),
            "nonoverlapped_comm_reduction": lambda c: 1 / self._ratio(c, "exposed_s"),
            "communication_overhead_increase": lambda c: 100 * (self._ratio(c, "exposed_s") - 1),
            "throughput_gain": self._throughput_gain,
            "iteration_time_increase": self._increase,
            "time": self._small_all_reduce_ms,
            "allreduce_time": self._all_reduces_ms,
        }

    def iteration(self, run: Run) -> Iteration:
        """Iteration that the cost model predicts for `run`, computed once."""
        if run not in self._known:
            self._known[run] = self._iteration(run)
        return self._known[run]

    def _iteration(self, run: Run) -> Iteration:
        cluster = self.testbed.cluster(run.workers, run.rate_mbit)
        if run.method in PACKED:  # which gather
            cluster = cluster.slower(1 / self.testbed["gather_factor"])
        job = ReplayJob(run.model, self.testbed.compute(run.model).at(run.batch), cluster)
        return iteration(job, self._method(run))

    def _method(self, run: Run) -> ReplayedMethod:
        """Sign-SGD, Top-k SGD and Power-SGD: after backward, all layers at once."""
        if run.method not in TARGETS:
            raise Unpredictable(f"no method {run.method!r} on this testbed")
        target, fields = TARGETS[run.method]
        cost = self.testbed.cost(target.partition(".")[0])
        if "rank" in fields:
            fields = fields | {"rank": run.rank or rank_of(run.model)}
        found = ReplayedMethod(target, tuple(fields.items()), TOP_K_DENSITY, cost, turn=2)
        if run.method in (*PACKED, "Power-SGD"):
            return found._replace(overlap="after_backward", bucket_mb=ALL_MB)
        if run.fusion == "naive":
            return found._replace(overlap="after_backward", bucket_mb=EACH_MB)
        if run.fusion == "WFBP":
            return found._replace(bucket_mb=EACH_MB, interference=self.testbed["interference"])
        if run.method == "ACP-SGD":
            return found._replace(bucket_mb=run.buffer_mb, fusion="compressed")
        return found

    def _total_s(self, run: Run) -> float:
        return self.iteration(run).total_s

    def _slower_or_growth(self, cell: Cell) -> float:
        if " vs " in cell.method:
            one, other = pair(cell)
            return self._total_s(one) / self._total_s(other)
        name, before, after = change(cell.method, "r")
        runs = (replace(run_of(cell, name), rank=rank) for rank in (after, before))
        longer_s, shorter_s = (self._total_s(run) for run in runs)
        return longer_s / shorter_s

    def _speedup(self, cell: Cell) -> float:
        if cell.metric == "speedup" and cell.id == "acp_fig5_text":
            return self._fused_or_not(cell)
        one, other = pair(cell)
        return self._total_s(other) / self._total_s(one)

    def _ratio(self, cell: Cell, part: str) -> float:
        one, other = (getattr(self.iteration(run), part) for run in pair(cell))
        if min(one, other) < NOTHING_S:
            raise Unpredictable(f"{part} is nothing here")
        return one / other

    def _speedup_mean(self, cell: Cell) -> float:
        """Mean of speed-ups: over models, or between two ways of sending of figure 9."""
        if " vs WFBP" in cell.method:
            return fmean(self._fusions(cell, cell.method.split()[0], "WFBP+TF", "WFBP"))
        both = cell.method.endswith("(both)")
        method = cell.method.removesuffix(" (both)")
        others = ["Power-SGD", "Power-SGD*"] if both else [method.split(" vs ")[1]]
        cells = [cell._replace(model=m, method=f"ACP vs {o}") for m in MODELS for o in others]
        return fmean(self._speedup(each) for each in cells)

    def _speedup_max(self, cell: Cell) -> float:
        if "naive" in cell.method:
            return max(self._fusions(cell, "ACP-SGD", "WFBP+TF", "naive"))
        pairs = [(model, star) for model in MODELS for star in ("Power-SGD", "Power-SGD*")]
        return max(
            self._speedup(cell._replace(model=model, method=f"ACP vs {name}"))
            for model, name in pairs
        )

    def _slowdown(self, cell: Cell) -> float:
        """Percent, mean over the methods named."""
        names, _, baseline = cell.method.partition(" vs ")
        base_s = self._total_s(run_of(cell, baseline))
        return 100 * fmean(
            self._total_s(run_of(cell, name)) / base_s - 1 for name in names.split(" & ")
        )

    def _advantages(self, cell: Cell) -> list[float]:
        base_s = self._total_s(run_of(cell, "S-SGD"))
        others = ("Sign-SGD", "Top-k SGD", "Power-SGD")
        return [100 * (self._total_s(run_of(cell, name)) / base_s - 1) for name in others]

    def _slowdown_alone(self, cell: Cell) -> float:
        """On one GPU nothing is sent: what hooks lose is to backward."""
        run = replace(run_of(cell, "Power-SGD*"), workers=1, fusion="WFBP")
        return 100 * (self._total_s(run) / self._total_s(replace(run, fusion="naive")) - 1)

    def _fusions(self, cell: Cell, name: str, faster: str, slower: str) -> list[float]:
        """Speed-ups of `faster` over `slower`, by model."""
        models = FUSED if "," in cell.model or not cell.model else (cell.model,)
        runs = [run_of(cell._replace(model=model), name) for model in models]
        return [
            self._total_s(replace(run, fusion=slower)) / self._total_s(replace(run, fusion=faster))
            for run in runs
        ]

    def _fusion_change(self, cell: Cell) -> float:
        """Percent faster, or slower."""
        if "0MB" in cell.method:
            return self._buffer_gain(cell)
        told = re.fullmatch(r"(\S+) (\S+) vs (\S+)", cell.method)
        if told is None:
            raise Unpredictable(f"method must be like 'S-SGD WFBP vs naive', got {cell.method!r}")
        names, after, before = told.groups()
        found = [x for name in names.split(",") for x in self._fusions(cell, name, after, before)]
        slower = cell.metric.startswith("slowdown")
        return 100 * (fmean(1 / x for x in found) - 1) if slower else 100 * (fmean(found) - 1)

    def _buffer_gain(self, cell: Cell) -> float:
        """Figure 10: percent, mean over the two ends of the sweep."""
        run = replace(run_of(cell, "ACP-SGD"), rank=int(option(cell.method, "r=") or 0) or None)
        best_s = self._total_s(run)
        ends = [float(mb) for mb in re.findall(r"(\d+)MB", cell.method) if float(mb) != BUFFER_MB]
        return 100 * fmean(self._total_s(replace(run, buffer_mb=end)) / best_s - 1 for end in ends)

    def _throughput_gain(self, cell: Cell) -> float:
        name, before, after = change(cell.method, "bs")
        times = [self._total_s(replace(run_of(cell, name), batch=b)) for b in (before, after)]
        return after / before * times[0] / times[1]

    def _increase(self, cell: Cell) -> float:
        """Percent from the first to the second number of workers, mean over models."""
        few, many = (int(part) for part in cell.workers.split("->"))
        models = SWEPT if cell.model == "mean" else (cell.model,)
        runs = [run_of(cell._replace(model=model, workers=""), cell.method) for model in models]
        return 100 * fmean(
            self._total_s(replace(run, workers=many)) / self._total_s(replace(run, workers=few)) - 1
            for run in runs
        )

    def _small_all_reduce_ms(self, cell: Cell) -> float | None:
        found = re.fullmatch(r"(one|two) (\d+)KB all-reduces?", cell.method)
        if found is None:
            return None
        times = {"one": 1, "two": 2}[found[1]]
        return 1e3 * times * all_reduce_s(self.testbed.cluster(), int(found[2]) * KIB)

    def _all_reduces_ms(self, cell: Cell) -> float:
        """Figure 5's text: all tensors of a model, or their factors, one by one or at once."""
        factors = re.match(r"ACP r=(\d+)", cell.method)
        cluster, known = self.testbed.cluster(), tensors(cell.model)
        rank = int(factors[1]) if factors else 0
        sides = (0, 1) if factors else (0,)

        def took_s(side: int) -> float:
            sizes = [t.factor(rank, side) if factors else t.elements for t in known]
            fused = [sum(sizes)] if "fused" in cell.method else sizes
            return sum(all_reduce_s(cluster, FLOAT_BYTES * size) for size in fused)

        return 1e3 * fmean(took_s(side) for side in sides)

    def _fused_or_not(self, cell: Cell) -> float:
        name = cell.method.removesuffix(" fused vs separate")
        apart, together = (
            self._all_reduces_ms(cell._replace(method=f"{name} {how}"))
            for how in ("separately", "fused")
        )
        return apart / together
