"""Meeting points of ranks in a virtual world, where they exchange objects without using time."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from harness.engine.training.together import Together
from harness.virtual.world import World


@dataclass
class _Round:
    brought: dict[int, Any] = field(default_factory=dict)
    made: list[Any] = field(default_factory=list)  # one thing, once all are here


class Circle:
    """Group of `size` ranks that meet and exchange objects in no time."""

    def __init__(self, world: World, size: int) -> None:
        self.size, self._world, self._round = size, world, _Round()
        self._parts: dict[Hashable, Circle] = {}

    def part(self, name: Hashable, size: int) -> "Circle":
        """Return the circle `name` of `size` of these ranks. The first call creates it."""
        return self._parts.setdefault(name, Circle(self._world, size))

    def meet(self, member: int, brought: Any, make: Callable[[list[Any]], Any]) -> Any:
        """Wait for all members and return `make(objects)`, with objects in order of member."""
        current = self._round
        current.brought[member] = brought
        if len(current.brought) == self.size:
            self._round = _Round()
            current.made.append(make([current.brought[each] for each in range(self.size)]))
        else:
            self._world.wait(lambda: 0.0 if current.made else None)
        return current.made[0]


@dataclass
class Ranks(Together):
    """All ranks as `member` sees them: a `harness.engine.training.together.Together`.

    A rank is in `still` while its clock stands still. Its messages then take no time.
    """

    world: World
    circle: Circle
    member: int
    still: set[int]

    def begin(self) -> float:
        self.barrier_min(self.world.now_s)
        return self.world.now_s

    def barrier_min(self, mine: float) -> float:
        return self.circle.meet(self.member, mine, min)

    def gather(self, mine: Any) -> list[Any]:
        return self.circle.meet(self.member, mine, list)

    def stop(self, arrived: float) -> None:
        self.barrier_min(arrived)
        self.still.add(self.member)

    def go_on(self, arrived: float) -> None:
        self.barrier_min(arrived)
        self.still.discard(self.member)
