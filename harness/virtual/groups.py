"""Costs of collectives among some nodes of a network, over the links of the whole network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.virtual.costs import Costs
from harness.virtual.link_states import LinkStates
from harness.virtual.routes import Paths, Routes
from profiles.play import Played


@dataclass(frozen=True)
class Among:
    """The nodes `chosen` of `routes`, as routes of their own over the same directions."""

    routes: Routes
    chosen: tuple[int, ...]

    @property
    def nodes(self) -> int:
        return len(self.chosen)

    @property
    def names(self) -> list[str]:
        return self.routes.names

    def played(self) -> list[Played]:
        return self.routes.played()

    def flows(self, time_s: float) -> int:
        return self.routes.flows(time_s)

    def shared(self) -> np.ndarray:
        return self.routes.shared()

    def pairs(self) -> list[str]:
        return self.routes.pairs()

    def paths(self, senders: np.ndarray, receivers: np.ndarray) -> Paths:
        chosen = np.array(self.chosen)
        return self.routes.paths(chosen[senders], chosen[receivers])


def among(costs: Costs, nodes: Sequence[int], number: int) -> Costs:
    """Return costs among the workers on `nodes`, with the noise of group `number`."""
    whole = costs.link_states
    found = replace(
        costs,
        link_states=LinkStates(Among(whole.routes, tuple(nodes)), whole.update_s),
        noise=replace(costs.noise, seed=costs.noise.seed + number),
    )
    found._carried = costs._carried
    return found
