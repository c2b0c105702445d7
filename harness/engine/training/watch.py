"""Measurements of what compression at several densities would keep, over the steps of a run.

It only reads. It records thresholds of the magnitudes of two kinds of tensors: gradients of a
parameter, with the residual under error feedback, and the rows of activations before a cut. A
second threshold comes from a Laplace fit. It also records histograms of these activations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from compressors.activations.rows import row_thresholds
from compressors.threshold_topk import ThresholdTopK
from compressors.topk_select import reached_at
from harness.config.watch import Watch
from harness.engine.exchange.reduction import BucketBuffers
from harness.records.run_directory import Bin, Table, Watched

BINS = 100
LAPLACE = ThresholdTopK("laplace")


@dataclass
class Watching:
    """The watch of one rank's model or stage. It appends to watched.csv and histograms.csv."""

    watch: Watch
    run_dir: Path
    rank: int
    accumulate: int  # micro-batches per step
    first: int  # step
    looks: Callable[[], bool]  # True while this rank computes with the model
    _tables: dict[str, Table] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name in ("watched.csv", "histograms.csv"):
            self._tables[name] = Table(self.run_dir, name)
            if self.rank == 0:
                self._tables[name].header()

    def of(self, before_cuts: Mapping[int, nn.Module]) -> None:
        """Register forward hooks on the layers before the cuts, keyed by cut number.

        Each records thresholds and histograms of the layer's output in training mode. The hook runs
        before all other hooks. If ranks share a model, each records only its own passes.
        """
        for number, layer in before_cuts.items():
            layer.register_forward_hook(self._activations(f"cut{number}"), prepend=True)

    def gradients(self, step: int, laid: BucketBuffers, residual: Tensor | None) -> None:
        """Append thresholds of the watched parameters in a bucket to watched.csv.

        Call it just before the bucket is compressed. Nothing happens in steps that are no multiple
        of `watch.every`. `residual`, [n], is what error feedback will add to the gradient. It is
        None without error feedback.
        """
        if step % self.watch.every:
            return
        sizes = [gradient.numel() for gradient in laid.gradients]
        left = laid.buffer.new_zeros(sum(sizes)) if residual is None else residual
        for name, gradient, part in zip(laid.names, laid.gradients, left.split(sizes), strict=True):
            if name in self.watch.gradients:
                taken = (gradient.flatten() + part).cpu()
                found = [float(reached_at(taken, density)) for density in self.watch.densities]
                self._tell(step, name, found, taken)

    def _activations(self, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        counted = Counted(self.accumulate, self.first)

        def look(layer: nn.Module, inputs: Any, output: Tensor) -> None:
            if not (layer.training and self.looks()):
                return
            step, is_last = counted.next()
            rows = output.detach().flatten(0, -2).float().cpu()
            if is_last and step % self.watch.every == 0:
                found = [row_thresholds(rows, density) for density in self.watch.densities]
                self._tell(step, name, [float(each.mean()) for each in found], rows.flatten())
            if is_last and step in self.watch.histogram_at:
                self._tables["histograms.csv"].append(*self._histogram(step, name, rows))

        return look

    def _tell(self, step: int, name: str, thresholds: list[float], of: Tensor) -> None:
        """Append one row per density to watched.csv.

        `thresholds` has one per density. The threshold of a Laplace fit to `of`, [n], is added.
        """
        pairs = zip(self.watch.densities, thresholds, strict=True)
        rows = [
            Watched(step, self.rank, name, density, value, LAPLACE.threshold(of, density))
            for density, value in pairs
        ]
        self._tables["watched.csv"].append(*rows)

    def _histogram(self, step: int, name: str, rows: Tensor) -> list[Bin]:
        low, high = float(rows.min()), float(rows.max())
        counts = torch.histc(rows, BINS, low, high).tolist()
        edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64).tolist()
        mean, deviation = float(rows.mean()), float(rows.std(correction=0))
        return [
            Bin(step, self.rank, name, edges[bin], edges[bin + 1], int(count), mean, deviation)
            for bin, count in enumerate(counts)
        ]


@dataclass
class Counted:
    """Counter of micro-batches: `accumulate` make a step, and the first is of step `first`."""

    accumulate: int
    first: int  # step
    seen: int = field(default=0, init=False)

    def next(self) -> tuple[int, bool]:
        """Count a micro-batch. Return its step and whether it is the last of that step."""
        self.seen += 1
        done, left = divmod(self.seen, self.accumulate)
        return self.first + done - (left == 0), left == 0
