"""Two levels of network in virtual time: circles inside the nodes, and between them.

Traffic inside a node is free. The rings of a node's workers to other nodes share its link, and take
as long as one ring that carries their sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from harness.engine.exchange.collectives import Levels
from harness.engine.exchange.levels import OneLevel, TwoLevels
from harness.virtual.circle import Circle
from harness.virtual.costs import Costs
from harness.virtual.lanes import CollectiveCall, LaneOp, Work
from harness.virtual.workers import SimulatedWorkers

INSIDE: tuple[CollectiveCall, ...] = (("inside",),)
Calls = tuple[CollectiveCall, ...]  # of one operation


@dataclass
class LevelCosts(Costs):
    """Costs of collectives between nodes, each of which has `sharers` workers."""

    sharers: int = 1

    def inside(self, start_s: float) -> float:
        """Return the end of a collective inside every node."""
        return start_s

    def early_s(self, start_s: float, end_s: float, collective: str, *asked: Any) -> np.ndarray:
        nodes = np.zeros(self.link_states.routes.nodes)
        if collective != "inside":
            nodes = super().early_s(start_s, end_s, collective, *asked)
        return np.repeat(nodes, self.sharers)

    def common(self, works: Sequence[Work]) -> Sequence[Work]:
        """Return the works of all workers, where a call has the bytes of all rings that share it.

        The rings of a node may call different collectives, or fewer, as their shards differ.
        """
        peers, found = works[: self.sharers], []
        opening = _sums([work.opening for work in peers])
        buckets = list(map(_sums, zip(*(work.buckets for work in peers), strict=True)))
        for work in works:
            pairs = zip(work.buckets, buckets, strict=True)
            own = [_with(ops, sums) for ops, sums in pairs]
            found.append(work._replace(opening=_with(work.opening, opening), buckets=own))
        return found


def between_nodes(costs: Costs) -> LevelCosts:
    """Return the costs between the nodes of `costs`, which go on counting its bytes."""
    same = {each.name: getattr(costs, each.name) for each in fields(costs)}
    found = LevelCosts(**same | {"workers_per_node": 1}, sharers=costs.workers_per_node)
    found._carried = costs._carried
    return found


@dataclass
class SimulatedLevel(OneLevel, SimulatedWorkers):
    """The workers of one level, where `whole` records the operations."""

    whole: SimulatedWorkers = field(kw_only=True)
    is_inside: bool = field(kw_only=True)

    def _pause(self) -> None:
        self.whole._pause()

    def _called(self, collectives: Calls) -> None:
        self.whole._called(INSIDE if self.is_inside else collectives)


@dataclass
class TwoLevelSimulatedWorkers(TwoLevels, SimulatedWorkers):
    """All workers of a simulated run, in two levels."""

    circle: Circle
    workers_per_node: int = field(kw_only=True)

    def __post_init__(self) -> None:
        own = self.workers_per_node
        nodes, (node, number) = self.world_size // own, divmod(self.rank, own)
        circles = self.circle.part(("inside", node), own), self.circle.part(("peer", number), nodes)
        given = self.costs, self.device, 0.0
        level = partial(SimulatedLevel, whole=self)
        self.levels = Levels(
            level(number, own, circles[0], *given, is_inside=True),
            level(node, nodes, circles[1], *given, is_inside=False),
        )
        self.shards = own


def _sums(peers: Sequence[Sequence[LaneOp]]) -> list[Calls]:
    """Return the calls between nodes of a node's workers, each the sum over the workers."""
    calls = [[op.call for op in ops if op.call and op.call != INSIDE] for ops in peers]
    return [_sum([each for each in same if each]) for same in zip_longest(*calls)]


def _sum(calls: Sequence[Calls]) -> Calls:
    """Merge `calls`: add the bytes of equal collectives at one position; others follow in order."""
    alike: dict[Any, list[CollectiveCall]] = {}
    for call in calls:
        for position, collective in enumerate(call):
            alike.setdefault((position, collective[0]), []).append(collective)
    return tuple(
        (first[0], np.sum([first[1], *(each[1] for each in others)], axis=0).tolist(), *first[2:])
        for first, *others in alike.values()
    )


def _with(ops: Sequence[LaneOp], sums: Sequence[Calls]) -> list[LaneOp]:
    """Return a worker's operations with the calls `sums` in place of its own between nodes.

    Calls that only its neighbours have come before its last one inside the node.
    """
    calls = iter(sums)
    found = [op._replace(call=next(calls)) if op.call not in ((), INSIDE) else op for op in ops]
    if more := [LaneOp(0.0, call) for call in calls]:
        last = max(at for at, op in enumerate(found) if op.call == INSIDE)
        found[last:last] = more
    return found
