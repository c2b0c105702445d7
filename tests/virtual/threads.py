"""Workers of virtual time at work without a run."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from harness.virtual.circle import Circle
from harness.virtual.costs import Costs
from harness.virtual.link_states import LinkStates
from harness.virtual.routes import Routes, StarRoutes
from harness.virtual.workers import SimulatedWorkers
from harness.virtual.world import World
from profiles.static import Static

CPU = torch.device("cpu")


def costs_of(
    profile: Any, nodes: int, sharing: int = 1, routes: Routes | None = None, **changes: float
) -> Costs:
    """Without latencies and overheads, unless told: 8 Mbit/s are 1 MB/s."""
    told = {"alpha_s": 0.0, "operation_s": 0.0, "efficiency": 1.0, "update_s": 0.1} | changes
    link_states = LinkStates(routes or StarRoutes(profile, nodes), told.pop("update_s"))
    return Costs(link_states, sharing, **told)


def together(
    size: int,
    work: Callable[[SimulatedWorkers], Any],
    costs: Costs | None = None,
    kind: type[SimulatedWorkers] = SimulatedWorkers,
) -> list[Any]:
    """The results of `work` on `size` workers, by rank; raises the first failure."""
    costs = costs or costs_of(Static(rate_mbit=8.0), size)
    results: list[Any] = [None] * size
    world = World(CPU)
    circle = Circle(world, size)

    def be(rank: int) -> None:
        results[rank] = work(kind(rank, size, circle, costs, CPU, 0.0))

    for rank in range(size):
        world.begin(partial(be, rank), rank, f"rank {rank}")
    world.run()
    if world.failure is not None:
        raise world.failure[1]
    return results
