"""Gradients of the server, pushed by trainers, and the model replica at a trainer."""

from dataclasses import dataclass, field
from typing import Any

from harness.engine.parameter_server.flat_parameters import FlatParameters, set_buffers
from harness.engine.parameter_server.server_loop import ServerLoop
from harness.engine.training.gradients import Trained
from harness.engine.training.replica import Gathered


class PulledReplica(Gathered):
    """A trainer's replica of the model, whose weights are pulled; only the server updates them."""

    def __post_init__(self) -> None:
        self.buckets = FlatParameters(self.model, self.bucket_mb)
        self.exchange.lay(self.buckets.weights, self.buckets.buckets)

    def update(self, step: Any) -> None:
        self.model.zero_grad()


@dataclass(kw_only=True)
class ServerGradients(Trained):
    """The server's gradients: it has no batches, and takes batch statistics from a trainer."""

    server_loop: ServerLoop = field(init=False)
    _evaluated: int = field(default=0, init=False)  # version of the weights

    def evaluate(self) -> dict[str, float]:
        """Return metrics of the whole test set; {} if these weights were evaluated before."""
        version = self.server_loop.store.model.version
        if self._evaluated == version:
            return {}
        self._evaluated = version
        if any(True for _ in self.model.buffers()):
            set_buffers(self.model, self.server_loop.buffers())
        return super().evaluate()

    def own(self) -> dict[str, Any]:
        store = self.server_loop.store
        return super().own() | {"version": store.model.version, "pushed": store.pushed}

    def load_state_dict(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        super().load_state_dict(shared, own)
        store = self.server_loop.store
        store.model.version = self._evaluated = own["version"]
        store.pushed.copy_(own["pushed"])
