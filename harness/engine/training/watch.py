"""What compressions at several densities would keep of gradients and activations, over the steps.

Looks and changes nothing: thresholds of the magnitudes of a parameter's gradient, and of the rows
of activations before a cut, whether or not they are compressed there; beside them the thresholds
that a Laplace fit gives; and histograms of these activations.
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
from harness.records.run_directory import Bin, Table, Watched

BINS = 100
LAPLACE = ThresholdTopK("laplace")


def always() -> bool:
    return True


@dataclass
class Watching:
    """A watch of one rank's model, or stage, which adds rows to two tables of the run."""

    watch: Watch
    run_dir: Path
    rank: int
    accumulate: int  # micro-batches of a step: of a gradient the sum is looked at
    first: int  # step
    looks: Callable[[], bool] = always  # whether it is this rank that computes with the model
    _tables: dict[str, Table] = field(default_factory=dict, init=False)

    def of(self, model: nn.Module, before_cuts: Mapping[int, nn.Module]) -> None:
        """Look at `model` from now on; layers `before_cuts`, by cut, before what else looks there.

        Where ranks share it, each looks while it computes. Parameters of other stages are theirs.
        """
        for name in ("watched.csv", "histograms.csv"):
            self._tables[name] = Table(self.run_dir, name)
            if self.rank == 0:
                self._tables[name].header()
        parameters = dict(model.named_parameters())
        for name in self.watch.gradients:
            if name in parameters:
                parameters[name].register_post_accumulate_grad_hook(self._gradient(name))
        for number, layer in before_cuts.items():
            layer.register_forward_hook(self._activations(f"cut{number}"), prepend=True)

    def _gradient(self, name: str) -> Callable[[Tensor], None]:
        counted = Counted(self.accumulate, self.first)

        def look(parameter: Tensor) -> None:
            if not self.looks():
                return
            step, is_last = counted.next()
            if is_last and step % self.watch.every == 0 and parameter.grad is not None:
                grad = parameter.grad.flatten().cpu()
                found = [float(reached_at(grad, density)) for density in self.watch.densities]
                self._tell(step, name, found, grad)

        return look

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
        """A row for each density, with what a fit of all entries `of`, [n], gives for it."""
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
    """Micro-batches that have been seen."""

    accumulate: int
    first: int  # step
    seen: int = field(default=0, init=False)

    def next(self) -> tuple[int, bool]:
        """The step of another one, and whether it is the step's last."""
        self.seen += 1
        done, left = divmod(self.seen, self.accumulate)
        return self.first + done - (left == 0), left == 0
