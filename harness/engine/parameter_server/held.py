"""The model of a server, which trainers' gradients train; and the replicas that trainers have."""

from dataclasses import dataclass, field
from typing import Any

from harness.engine.parameter_server.flat import Flat, set_buffers
from harness.engine.parameter_server.serving import Serving
from harness.engine.training.gradients import Trained
from harness.engine.training.replica import Gathered


class Pulled(Gathered):
    """A trainer's: its weights are pulled, and it is the server that updates them."""

    def __post_init__(self) -> None:
        self.buckets = Flat(self.model, self.bucket_mb)
        self.exchange.lay(self.buckets.weights, self.buckets.buckets)

    def update(self, step: Any) -> None:
        self.model.zero_grad()


@dataclass(kw_only=True)
class Held(Trained):
    """The server's: it has no batches, and statistics of them are those of a trainer."""

    serving: Serving = field(init=False)
    _evaluated: int = field(default=0, init=False)  # version

    def evaluate(self) -> dict[str, float]:
        """On the whole test set; nothing where that was done before."""
        if self._evaluated == (version := self.serving.service.weights.version):
            return {}
        self._evaluated = version
        if any(True for _ in self.model.buffers()):
            set_buffers(self.model, self.serving.buffers())
        return super().evaluate()

    def own(self) -> dict[str, Any]:
        service = self.serving.service
        return super().own() | {"version": service.weights.version, "applied": service.applied}

    def restore(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        super().restore(shared, own)
        service, applied = self.serving.service, own["applied"]
        service.weights.version = self._evaluated = own["version"]
        steps = min(applied.shape[1], service.steps)
        service.applied[:, :steps] = applied[:, :steps]
