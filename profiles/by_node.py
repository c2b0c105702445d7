"""Different profiles for different nodes, such as a straggler or a far site."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiles.base import Extremes, Link, Profile, Way, widest
from profiles.limits import check_profile


@dataclass(frozen=True)
class ByNode:
    """Profile with own profiles for some nodes. Its competing flows are the most of any of them."""

    default: Profile  # of every node that is not in `nodes`
    nodes: Any  # profiles by node number, {3: ...}; kept as sorted pairs
    _by_node: dict[int, Profile] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_profile(default=self.default)
        if not isinstance(self.nodes, Mapping) or not self.nodes:
            raise ValueError(f"nodes must map node numbers to profiles, got {self.nodes!r}")
        by_node: dict[int, Profile] = {}
        for key, profile in self.nodes.items():
            node = _node(key)
            if node in by_node:
                raise ValueError(f"nodes must name each node once, got {node} twice")
            check_profile(**{f"nodes.{key}": profile})
            by_node[node] = profile
        object.__setattr__(self, "nodes", tuple(sorted(by_node.items(), key=lambda pair: pair[0])))
        object.__setattr__(self, "_by_node", by_node)

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return self._by_node.get(node, self.default).link(time_s, node, way)

    def flows(self, time_s: float) -> int:
        return max(part.flows(time_s) for part in (self.default, *self._by_node.values()))

    def extremes(self) -> Extremes:
        return widest(part.extremes() for part in (self.default, *self._by_node.values()))


def _node(key: Any) -> int:
    """Return the node number of `key`, an int >= 0 or up to 9 digits; ValueError for other keys."""
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 9:
        return int(key)
    if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
        return key
    raise ValueError(f"nodes must have whole numbers >= 0 as keys, got {key!r}")
