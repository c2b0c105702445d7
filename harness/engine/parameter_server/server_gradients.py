"""The model of a server, which trainers' gradients train; and the replicas that trainers have."""

from dataclasses import dataclass, field
from typing import Any

from harness.engine.parameter_server.flat_parameters import FlatParameters, set_buffers
from harness.engine.parameter_server.server_loop import ServerLoop
from harness.engine.training.gradients import Trained
from harness.engine.training.replica import Gathered


class PulledReplica(Gathered):
    """A trainer's: its weights are pulled, and it is the server that updates them."""

    def __post_init__(self) -> None:
        self.buckets = FlatParameters(self.model, self.bucket_mb)
        self.exchange.lay(self.buckets.weights, self.buckets.buckets)

    def update(self, step: Any) -> None:
        self.model.zero_grad()


@dataclass(kw_only=True)
class ServerGradients(Trained):
    """The server's: it has no batches, and statistics of them are those of a trainer."""

    server_loop: ServerLoop = field(init=False)
    _evaluated: int = field(default=0, init=False)  # version

    def evaluate(self) -> dict[str, float]:
        """On the whole test set; nothing where that was done before."""
        if self._evaluated == (version := self.server_loop.store.weights.version):
            return {}
        self._evaluated = version
        if any(True for _ in self.model.buffers()):
            set_buffers(self.model, self.server_loop.buffers())
        return super().evaluate()

    def own(self) -> dict[str, Any]:
        store = self.server_loop.store
        return super().own() | {"version": store.weights.version, "applied": store.applied}

    def load_state_dict(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        super().load_state_dict(shared, own)
        store, applied = self.server_loop.store, own["applied"]
        store.weights.version = self._evaluated = own["version"]
        steps = min(applied.shape[1], store.steps)
        store.applied[:, :steps] = applied[:, :steps]
