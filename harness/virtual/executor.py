"""Background work of a rank in virtual time."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.virtual.world import World


@dataclass
class Promise:
    """Future result of a task on another virtual thread."""

    world: World
    work: Callable[[], Any]
    value: Any = field(default=None, init=False)
    done_s: float | None = field(default=None, init=False)

    def result(self) -> Any:
        """Wait for the task and return its result."""
        self.world.wait(lambda: self.done_s)
        return self.value


class VirtualExecutor:
    """A thread of the rank that creates it, which runs tasks in order, as in concurrent.futures."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._tasks, self._open = world, deque[Promise](), True
        own = world.running
        world.begin(self._serve, own.rank, f"{own.name} {name}", own.now_s, aside=True)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Promise:
        promise = Promise(self._world, lambda: work(*arguments))
        self._tasks.append(promise)
        return promise

    def shutdown(self) -> None:
        """End the thread. No task may be running."""
        self._open = False

    def _serve(self) -> None:
        while True:
            self._world.wait_for(lambda: bool(self._tasks) or not self._open)
            if not self._tasks:
                return
            promise = self._tasks.popleft()
            promise.value = promise.work()
            promise.done_s = self._world.now_s
