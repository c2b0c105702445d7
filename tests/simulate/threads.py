"""Workers of virtual time at work without a run."""

from collections.abc import Callable
from typing import Any

import torch

from harness.simulate.conditions import Conditions
from harness.simulate.costs import Costs
from harness.simulate.routes import Routes, Star
from harness.simulate.turns import Turns
from harness.simulate.workers import SimulatedWorkers
from profiles.static import Static

CPU = torch.device("cpu")


def costs_of(
    profile: Any, nodes: int, sharing: int = 1, routes: Routes | None = None, **changes: float
) -> Costs:
    """Without latencies and overheads, unless told: 8 Mbit/s are 1 MB/s."""
    told = {"alpha_s": 0.0, "operation_s": 0.0, "efficiency": 1.0, "update_s": 0.1} | changes
    conditions = Conditions(routes or Star(profile, nodes), told.pop("update_s"))
    return Costs(conditions, sharing, **told)


def together(
    size: int,
    work: Callable[[SimulatedWorkers], Any],
    costs: Costs | None = None,
    kind: type[SimulatedWorkers] = SimulatedWorkers,
    rounds: int = 1,
) -> list[Any]:
    """The results of `work` on `size` workers, by rank; raises the first failure."""
    costs = costs or costs_of(Static(rate_mbit=8.0), size)
    results: list[Any] = [None] * size

    def turn(rank: int) -> None:
        results[rank] = work(workers[rank])

    turns = Turns(size, turn)
    workers = [kind(rank, size, turns, costs, CPU, 0.0) for rank in range(size)]
    try:
        for _ in range(rounds):
            turns.round()
            if turns.failure is not None:
                raise turns.failure[1]
    finally:
        turns.close()
    return results
