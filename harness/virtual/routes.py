"""Directions of links that a connection between nodes crosses, and flows that share them."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.config.sites import Sites
from profiles.base import WAYS, Profile
from profiles.limits import MOST_MBIT
from profiles.play import Played, played
from profiles.static import Static

Paths = np.ndarray  # [connections, most directions of one]: numbers of directions; VOID: none
VOID = -1  # the last direction, which is not shaped
TRUNK = 0  # the node whose link the profile of a dumbbell is asked for


class Routes(Protocol):
    """A network of `nodes` nodes. Its shaped directions are numbered in the order of `names`."""

    @property
    def nodes(self) -> int: ...

    @property
    def names(self) -> list[str]: ...

    def played(self) -> list[Played]:
        """Return a player of conditions for each direction; directions always equal share one."""
        ...

    def flows(self, time_s: float) -> int:
        """Return the competing flows on each `shared` direction."""
        ...

    def shared(self) -> np.ndarray:
        """Mask, [directions + 1]: 1 where competing flows run and 0 elsewhere."""
        ...

    def pairs(self) -> list[str]:
        """Names of the paths that competing flows use."""
        ...

    def paths(self, senders: np.ndarray, receivers: np.ndarray) -> Paths:
        """Return the paths from each sender to its receiver. Inside a node there is none."""
        ...


@dataclass(frozen=True)
class StarRoutes:
    """Star shaped by the profile. Flows compete from each node to the next, on every link."""

    profile: Profile
    nodes: int

    @property
    def names(self) -> list[str]:
        return [f"{way}{node}" for way in WAYS for node in range(self.nodes)]

    def played(self) -> list[Played]:
        return played(self.profile, [(node, way) for way in WAYS for node in range(self.nodes)])

    def flows(self, time_s: float) -> int:
        return self.profile.flows(time_s)

    def shared(self) -> np.ndarray:
        return np.append(np.ones(2 * self.nodes), 0)

    def pairs(self) -> list[str]:
        nodes = self.nodes
        return [f"{node}-{(node + 1) % nodes}" for node in range(nodes if nodes > 1 else 0)]

    def paths(self, senders: np.ndarray, receivers: np.ndarray) -> Paths:
        crossed = np.stack([senders, self.nodes + receivers], axis=1)
        return np.where((senders == receivers)[:, None], VOID, crossed)


@dataclass(frozen=True)
class SiteRoutes:
    """A star whose nodes are at sites. Traffic between sites also crosses a way between them.

    All traffic of a way shares its rate. Competing flows run on the links of nodes only.
    """

    profile: Profile
    nodes: int
    sites: Sites

    @property
    def _star(self) -> StarRoutes:
        return StarRoutes(self.profile, self.nodes)

    @property
    def _used(self) -> list[int]:
        return sorted(set(self.sites.of_nodes))

    @property
    def names(self) -> list[str]:
        return self._star.names + [f"site{a}-{b}" for a in self._used for b in self._used]

    def played(self) -> list[Played]:
        ways = [
            Static(self._mbit(a, b), delay_ms=self.sites.delays_ms[a][b])
            for a in self._used
            for b in self._used
        ]
        return self._star.played() + [played(way, [(0, "up")])[0] for way in ways]

    def _mbit(self, sender: int, receiver: int) -> float:
        rates = self.sites.rates_mbit
        return (rates and rates[sender][receiver]) or MOST_MBIT

    def flows(self, time_s: float) -> int:
        return self.profile.flows(time_s)

    def shared(self) -> np.ndarray:
        own = len(self._star.names)
        return np.append(np.ones(own), np.zeros(len(self.names) - own + 1))

    def pairs(self) -> list[str]:
        return self._star.pairs()

    def paths(self, senders: np.ndarray, receivers: np.ndarray) -> Paths:
        used = self._used
        at = np.array([used.index(site) for site in self.sites.of_nodes])
        between = 2 * self.nodes + len(used) * at[senders] + at[receivers]
        between = np.where(senders == receivers, VOID, between)
        return np.concatenate([self._star.paths(senders, receivers), between[:, None]], axis=1)


@dataclass(frozen=True)
class DumbbellRoutes:
    """The first `left` nodes and the others, joined by a trunk that the profile describes.

    Competing flows run across the trunk, both ways, between hosts of their own.
    """

    profile: Profile
    nodes: int
    left: int
    access: Profile | None = None  # of every node's own link; None: not shaped

    @property
    def names(self) -> list[str]:
        own = StarRoutes(self.access, self.nodes).names if self.access else []
        return [f"trunk_{way}" for way in WAYS] + own

    def played(self) -> list[Played]:
        own = StarRoutes(self.access, self.nodes).played() if self.access else []
        return played(self.profile, [(TRUNK, way) for way in WAYS]) + own

    def flows(self, time_s: float) -> int:
        return self.profile.flows(time_s)

    def shared(self) -> np.ndarray:
        return np.array([1.0, 1.0] + [0.0] * (len(self.names) - 1))

    def pairs(self) -> list[str]:
        return [f"trunk_{way}" for way in WAYS]

    def paths(self, senders: np.ndarray, receivers: np.ndarray) -> Paths:
        leaves, enters = senders < self.left, receivers < self.left
        trunk = np.where(leaves == enters, VOID, np.where(leaves, 0, 1))[:, None]
        if self.access is None:
            return trunk
        own = StarRoutes(self.access, self.nodes).paths(senders, receivers)
        return np.concatenate([np.where(own == VOID, VOID, own + 2), trunk], axis=1)
