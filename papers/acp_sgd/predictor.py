"""Predict ACP-SGD's timing cells (Zhang et al., 2023): figures 2, 3, 5 and 9 to 13, table III.

From section V.D on, the paper's "Power-SGD" means Power-SGD*, torch's hook; before, the original.
The method column also holds conditions: "ACP vs S-SGD bs=32" compares two methods at batch 32.
"bs16->32", "r32->r256" and, in the workers column, "8->64" compare a method with itself.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from harness.fidelity.bench import Bench
from harness.fidelity.layers import tensors
from harness.fidelity.measurement import Measurement, Unpredictable, rate_mbit
from harness.fidelity.predictor import Predictor
from harness.fidelity.replays import (
    ALL_MB,
    Iteration,
    ReplayedMethod,
    ReplayJob,
    all_reduce_s,
    iteration,
)

MODELS = ("ResNet-50", "ResNet-152", "BERT-Base", "BERT-Large")
SWEPT = ("ResNet-50", "BERT-Base")  # in figures 12 and 13
FUSED = ("ResNet-152", "BERT-Large")  # in figure 9
TOP_K_DENSITY = 0.001
BUFFER_MB = 25.0
EACH_MB = 0.0  # every tensor is a bucket
LEAST_S = 1e-9  # below this a time counts as 0 and has no ratio
FLOAT_BYTES, KIB = 4, 1024
RANKS = {"ResNet": 4, "BERT": 32}
STAR_FROM = ("acp_fig9", "acp_fig10", "acp_fig11a", "acp_fig11b", "acp_fig12", "acp_fig13")
NAMES = {"ACP": "ACP-SGD", "Top-k": "Top-k SGD", "Power": "Power-SGD", "Sign": "Sign-SGD"}
GATHERING = ("Sign-SGD", "Top-k SGD")
TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "S-SGD": ("dense.Dense", {}),
    "Sign-SGD": ("signsgd.SignSGD", {}),
    "Top-k SGD": ("topk.TopK", {"index_dtype": "int64"}),
    "Power-SGD": ("powersgd.PowerSGD", {"rank": None}),
    "Power-SGD*": ("powersgd.PowerSGD", {"rank": None, "vectors_apart": True}),
    "ACP-SGD": ("acp_sgd.ACPSGD", {"rank": None}),
}


@dataclass(frozen=True)
class Run:
    """One method under the conditions of a cell. None stands for the paper's usual value."""

    method: str
    model: str
    workers: int | None = None
    rate_mbit: float | None = None
    batch: int | None = None
    rank: int | None = None
    fusion: str = "WFBP+TF"  # naive | WFBP | WFBP+TF
    buffer_mb: float = BUFFER_MB


def run_of(cell: Measurement, method: str) -> Run:
    """Parse `method`, one name of the cell's method column, into a `Run` under its conditions."""
    name = method.strip()
    name = "Top-k" if name.startswith("Top-k") else name.partition(" ")[0]
    name = NAMES.get(name, name)
    if name == "Power-SGD" and cell.id in STAR_FROM:
        name = "Power-SGD*"
    workers = int(cell.workers) if cell.workers.isdigit() else None
    return Run(
        name,
        cell.model,
        workers=workers,
        rate_mbit=None if workers == 1 else rate_mbit(cell.network),
        batch=_option(cell.method, "bs="),
        rank=_option(cell.method, "r="),
    )


def pair(cell: Measurement) -> tuple[Run, Run]:
    """Return both runs of a cell like "ACP vs S-SGD"; raise `Unpredictable` for another cell."""
    one, versus, other = cell.method.partition(" vs ")
    if not versus:
        raise Unpredictable(f"method must be like 'ACP vs S-SGD', got {cell.method!r}")
    return run_of(cell, one), run_of(cell, other)


def change(method: str, key: str) -> tuple[str, int, int]:
    """Split "ACP-SGD r32->r256", with key "r", into name, 32, 256; else raise `Unpredictable`."""
    found = re.fullmatch(rf"(\S+) {key}(\d+)->(?:{key})?(\d+)", method)
    if found is None:
        raise Unpredictable(f"method must be like 'S-SGD {key}16->32', got {method!r}")
    return found[1], int(found[2]), int(found[3])


def _option(text: str, key: str) -> int | None:
    """Return the number after `key` in `text`; None if there is none or if it is 0."""
    found = re.search(rf"{re.escape(key)}(\d+)", text)
    return int(found[1]) or None if found else None


class AcpSgd(Predictor):
    paper, title = "acpsgd", "ACP-SGD"
    compares = {"acp_table3": "iteration_time_mean"}

    def __init__(self, bench: Bench, cells: Sequence[Measurement]) -> None:
        super().__init__(bench, cells)
        self._known: dict[Run, Iteration] = {}

    @cached_property
    def _rules(self) -> dict[str, Callable[[Measurement], float | None]]:
        return {
            "iteration_time_mean": lambda c: 1e3 * self._total_s(run_of(c, c.method)),
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
        """Return the replayed iteration of `run`; the result is cached."""
        if run not in self._known:
            cluster = self.bench.cluster(run.workers, run.rate_mbit)
            if run.method in GATHERING:
                cluster = cluster.slower(1 / self.bench["gather_factor"])
            job = ReplayJob(run.model, self.bench.compute(run.model).at(run.batch), cluster)
            self._known[run] = iteration(job, self._method(run))
        return self._known[run]

    def _method(self, run: Run) -> ReplayedMethod:
        """Return the method to replay; raise `Unpredictable` for an unknown method or rank.

        Sign-SGD, Top-k SGD and Power-SGD compress all layers at once after backward.
        """
        if run.method not in TARGETS:
            raise Unpredictable(f"no method {run.method!r} on this testbed")
        target, fields = TARGETS[run.method]
        if "rank" in fields:
            usual = [rank for family, rank in RANKS.items() if run.model.startswith(family)]
            if not (run.rank or usual):
                raise Unpredictable(f"no rank is published for {run.model!r}")
            fields = fields | {"rank": run.rank or usual[0]}
        cost = self.bench.cost(target.partition(".")[0])
        found = ReplayedMethod(target, tuple(fields.items()), TOP_K_DENSITY, cost, turn=2)
        if run.method in (*GATHERING, "Power-SGD"):
            return found._replace(overlap="after_backward", bucket_mb=ALL_MB)
        if run.fusion == "naive":
            return found._replace(overlap="after_backward", bucket_mb=EACH_MB)
        if run.fusion == "WFBP":
            return found._replace(bucket_mb=EACH_MB, interference=self.bench["interference"])
        if run.method == "ACP-SGD":
            return found._replace(bucket_mb=run.buffer_mb, fusion="compressed")
        return found

    def _total_s(self, run: Run) -> float:
        return self.iteration(run).total_s

    def _slower_or_growth(self, cell: Measurement) -> float:
        if " vs " in cell.method:
            one, other = pair(cell)
            return self._total_s(one) / self._total_s(other)
        name, before, after = change(cell.method, "r")
        run = run_of(cell, name)
        return self._total_s(replace(run, rank=after)) / self._total_s(replace(run, rank=before))

    def _speedup(self, cell: Measurement) -> float:
        """Return one method's speed-up over another; for figure 5's text, that of fusion."""
        if cell.id == "acp_fig5_text":
            name = cell.method.removesuffix(" fused vs separate")
            apart, together = (
                self._all_reduces_ms(cell._replace(method=f"{name} {how}"))
                for how in ("separately", "fused")
            )
            return apart / together
        one, other = pair(cell)
        return self._total_s(other) / self._total_s(one)

    def _ratio(self, cell: Measurement, part: str) -> float:
        one, other = (getattr(self.iteration(run), part) for run in pair(cell))
        if min(one, other) < LEAST_S:
            raise Unpredictable(f"{part} is nothing here")
        return one / other

    def _speedup_mean(self, cell: Measurement) -> float:
        """Return a mean speed-up: over models, or between two fusion modes of figure 9."""
        if " vs WFBP" in cell.method:
            return fmean(self._fusions(cell, cell.method.split()[0], "WFBP+TF", "WFBP"))
        both = cell.method.endswith("(both)")
        others = ["Power-SGD", "Power-SGD*"] if both else [cell.method.split(" vs ")[1]]
        cells = [cell._replace(model=m, method=f"ACP vs {o}") for m in MODELS for o in others]
        return fmean(self._speedup(each) for each in cells)

    def _speedup_max(self, cell: Measurement) -> float:
        if "naive" in cell.method:
            return max(self._fusions(cell, "ACP-SGD", "WFBP+TF", "naive"))
        return max(
            self._speedup(cell._replace(model=model, method=f"ACP vs {name}"))
            for model in MODELS
            for name in ("Power-SGD", "Power-SGD*")
        )

    def _slowdown(self, cell: Measurement) -> float:
        """Return the percent of slowdown, averaged over the methods that the cell names."""
        names, _, baseline = cell.method.partition(" vs ")
        base_s = self._total_s(run_of(cell, baseline))
        return 100 * fmean(
            self._total_s(run_of(cell, name)) / base_s - 1 for name in names.split(" & ")
        )

    def _advantages(self, cell: Measurement) -> list[float]:
        """Return by how many percent each compressor of figure 2 is slower than S-SGD."""
        base_s = self._total_s(run_of(cell, "S-SGD"))
        others = ("Sign-SGD", "Top-k SGD", "Power-SGD")
        return [100 * (self._total_s(run_of(cell, name)) / base_s - 1) for name in others]

    def _slowdown_alone(self, cell: Measurement) -> float:
        """Return by how many percent hooks slow Power-SGD* on one GPU, where nothing is sent."""
        run = replace(run_of(cell, "Power-SGD*"), workers=1, fusion="WFBP")
        return 100 * (self._total_s(run) / self._total_s(replace(run, fusion="naive")) - 1)

    def _fusions(self, cell: Measurement, name: str, faster: str, slower: str) -> list[float]:
        """Return the speed-up of fusion mode `faster` over `slower` for each model of the cell."""
        models = FUSED if "," in cell.model or not cell.model else (cell.model,)
        runs = [run_of(cell._replace(model=model), name) for model in models]
        return [
            self._total_s(replace(run, fusion=slower)) / self._total_s(replace(run, fusion=faster))
            for run in runs
        ]

    def _fusion_change(self, cell: Measurement) -> float:
        """Predict the mean percent of change between two fusion modes; Unpredictable if not two."""
        if "0MB" in cell.method:
            return self._buffer_gain(cell)
        parts = re.fullmatch(r"(\S+) (\S+) vs (\S+)", cell.method)
        if parts is None:
            raise Unpredictable(f"method must be like 'S-SGD WFBP vs naive', got {cell.method!r}")
        names, after, before = parts.groups()
        found = [x for name in names.split(",") for x in self._fusions(cell, name, after, before)]
        slower = cell.metric.startswith("slowdown")
        return 100 * (fmean(1 / x for x in found) - 1) if slower else 100 * (fmean(found) - 1)

    def _buffer_gain(self, cell: Measurement) -> float:
        """Return by how many percent the ends of figure 10's buffer sweep are slower on average."""
        run = run_of(cell, "ACP-SGD")
        best_s = self._total_s(run)
        ends = [float(mb) for mb in re.findall(r"(\d+)MB", cell.method) if float(mb) != BUFFER_MB]
        return 100 * fmean(self._total_s(replace(run, buffer_mb=end)) / best_s - 1 for end in ends)

    def _throughput_gain(self, cell: Measurement) -> float:
        name, before, after = change(cell.method, "bs")
        times = [self._total_s(replace(run_of(cell, name), batch=b)) for b in (before, after)]
        return after / before * times[0] / times[1]

    def _increase(self, cell: Measurement) -> float:
        """Return by how many percent a step grows with the cell's workers, mean over models."""
        few, many = (int(part) for part in cell.workers.split("->"))
        models = SWEPT if cell.model == "mean" else (cell.model,)
        runs = [run_of(cell._replace(model=model, workers=""), cell.method) for model in models]
        return 100 * fmean(
            self._total_s(replace(run, workers=many)) / self._total_s(replace(run, workers=few)) - 1
            for run in runs
        )

    def _small_all_reduce_ms(self, cell: Measurement) -> float | None:
        found = re.fullmatch(r"(one|two) (\d+)KB all-reduces?", cell.method)
        if found is None:
            return None
        times = {"one": 1, "two": 2}[found[1]]
        return 1e3 * times * all_reduce_s(self.bench.cluster(), int(found[2]) * KIB)

    def _all_reduces_ms(self, cell: Measurement) -> float:
        """Return the ms to all-reduce all tensors or factors, fused or apart (figure 5's text)."""
        factors = re.match(r"ACP r=(\d+)", cell.method)
        cluster, known, totals_s = self.bench.cluster(), tensors(cell.model), []
        for side in (0, 1) if factors else (0,):
            sizes = [t.factor(int(factors[1]), side) if factors else t.elements for t in known]
            fused = [sum(sizes)] if "fused" in cell.method else sizes
            totals_s.append(sum(all_reduce_s(cluster, FLOAT_BYTES * size) for size in fused))
        return 1e3 * fmean(totals_s)


PREDICTOR = AcpSgd
