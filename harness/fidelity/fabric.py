"""What collectives take on a testbed: the formulas of virtual time, at a constant rate."""

from dataclasses import dataclass, replace
from functools import cache

from harness.simulate.costs import Costs
from harness.simulate.network import Simulated
from profiles.static import Static

FOREVER_S = 3600.0  # between looks at a network that does not change


@dataclass(frozen=True)
class Fabric:
    """`workers` ranks, `per_node` behind each network card of `rate_mbit`.

    A ring that visits node after node enters and leaves each once, so every card carries what one
    of *all* ranks sends. Inside a node only latency counts.
    `gather_factor` is what an all-gather reaches of the rate of an all-reduce.
    """

    workers: int
    per_node: int
    rate_mbit: float
    efficiency: float
    alpha_s: float
    gather_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.workers > self.per_node and self.workers % self.per_node:
            raise ValueError(
                f"workers must be a multiple of the {self.per_node} of a node, got {self.workers}"
            )

    def all_reduce_s(self, nbytes: float) -> float:
        """Ring; `nbytes` is the vector that every worker holds."""
        return _all_reduce_s(self, round(nbytes))

    def all_gather_s(self, nbytes: float) -> float:
        """Ring; every worker contributes `nbytes`."""
        slower = replace(self, efficiency=self.efficiency * self.gather_factor, gather_factor=1.0)
        return _all_gather_s(slower, round(nbytes))

    def all_to_all_s(self, nbytes: float) -> float:
        """Every worker sends `nbytes` in all, evenly to all others and itself."""
        each = round(nbytes / self.workers)
        return float(_costs(self).all_to_all(0.0, [[each] * self.workers] * self.workers))


@cache
def _all_reduce_s(fabric: Fabric, nbytes: int) -> float:
    return float(_costs(fabric).all_reduce(0.0, nbytes, fabric.workers))


@cache
def _all_gather_s(fabric: Fabric, nbytes: int) -> float:
    return float(_costs(fabric).all_gather(0.0, [nbytes] * fabric.workers))


@cache
def _costs(fabric: Fabric) -> Costs:
    network = Simulated(
        alpha_s=fabric.alpha_s,
        operation_s=0.0,
        efficiency=fabric.efficiency,
        update_s=FOREVER_S,
    )
    per_node = min(fabric.workers, fabric.per_node)
    return network.costs(Static(fabric.rate_mbit), fabric.workers // per_node, per_node)
