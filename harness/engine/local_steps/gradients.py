"""A step of a worker with weights of its own: a model on real data, or sizes alone."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from harness.engine.local_steps.exchange import OuterExchange, OuterState
from harness.engine.local_steps.outer import OuterModel
from harness.engine.training.course import Course
from harness.engine.training.gradients import Gradients, Trained
from harness.engine.training.random_numbers import set_random_numbers
from harness.engine.training.replica import Backward, Replica, put, unchanged


@dataclass
class OwnReplica(Replica):
    """A model that only its rank trains. Sums of an evaluation are over all ranks."""

    gather: Callable[[Any], list[Any]]  # every rank's object, by rank

    def settle(self, backward: Backward, inputs: Tensor) -> None:
        with unchanged(self.model):
            backward(self.model, inputs)

    def summed(self, sums: Tensor) -> Tensor:
        """Add the sums of all ranks in order of rank, with equal results everywhere."""
        return torch.stack([each.to(sums.device) for each in self.gather(sums)]).sum(0)


@dataclass(kw_only=True)
class LocalTrained(Trained):
    """Optimizer steps on this worker's own gradients. `outer` moves the common weights.

    Clipping and schedule apply to these steps, and the optimizer's state stays with the worker. The
    common weights are evaluated, and saved as the model.
    """

    annotations: ClassVar[dict[str, Any]] = Trained.annotations | {
        "outer": OuterState,
        "sent": dict[str, Tensor],
    }
    replica: OwnReplica
    outer: OuterModel
    blend: float

    def compute(self, step: int) -> float:
        exchange: OuterExchange = self.exchange
        loss = super().compute(step)
        with self.clock.computing():
            self._step(step)
        exchange.submit(self._fill)
        return loss

    def _fill(self, fragment: int) -> None:
        with self.clock.computing():
            self.outer.moved(fragment, self._views(fragment))

    def update(self, step: int) -> None:
        """Move the weights by the fragments whose exchange has landed."""
        exchange: OuterExchange = self.exchange
        blend = 0.0 if exchange.reduction.dense else self.blend
        with self.clock.computing():
            for fragment in exchange.landed:
                self.outer.land(fragment, self._views(fragment), blend)

    def _views(self, fragment: int) -> dict[str, Tensor]:
        """Return the buckets of a fragment as views, by name of its tensors."""
        exchange: OuterExchange = self.exchange
        return {
            name: view
            for memory in exchange.laid[fragment]
            for laid in memory.laid
            for name, view in zip(laid.names, laid.gradients, strict=True)
        }

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        own = [each.clone() for each in self._tensors().values()]
        put(self._tensors().values(), self._anchors())
        self.model.eval()
        sums = self.tested()
        self.model.train()
        put(self._tensors().values(), own)
        metrics = self.task.metrics(self.replica.summed(sums))
        return metrics | (self._apart() if self.outer.layout.is_gossip else {})

    def _apart(self) -> dict[str, float]:
        """Return the root mean square over workers of |weights - mean|, over |mean|."""
        own = torch.cat([each.flatten() for each in self._anchors()]).cpu()
        every = torch.stack(self.replica.gather(own)).double()
        mean = every.mean(0)
        apart = (every - mean).square().sum(1).mean().sqrt() / mean.norm()
        return {"replica_distance": apart.item()}

    def common(self) -> list[Tensor]:
        if self.outer.layout.is_gossip:
            return []
        named = self.outer.anchors
        return [named[name] for name, _ in self._parameters() if name in named]

    def shared(self) -> dict[str, Any]:
        """Return the state equal on all ranks: model of the common weights, anchors, velocities."""
        named = self.model.state_dict(keep_vars=True)
        in_common = {id(each): self.outer.anchors[name] for name, each in self._tensors().items()}
        return {
            "model": {name: in_common.get(id(v), v.detach()) for name, v in named.items()},
            "anchors": self.outer.anchors,
            "velocities": self.outer.velocities,
        }

    def own(self) -> dict[str, Any]:
        exchange: OuterExchange = self.exchange
        weights = {name: each.detach() for name, each in self._parameters()}
        told: dict[str, Any] = {"weights": weights, "optimizer": self.optimizer.state_dict()}
        told |= {"outer": exchange.state(), "sent": self.outer.sent}
        if self.outer.layout.is_gossip:
            told |= {"anchors": self.outer.anchors, "velocities": self.outer.velocities}
        return super().own() | told

    @torch.no_grad()
    def load_state_dict(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        exchange: OuterExchange = self.exchange
        for kept, now in (
            (own["weights"], dict(self._parameters())),
            (own["buffers"], dict(self.model.named_buffers())),
            ((shared | own)["anchors"], self.outer.anchors),
            ((shared | own)["velocities"], self.outer.velocities),
        ):
            for name, value in now.items():
                value.copy_(kept[name])
        self.outer.sent = dict(own["sent"])
        self.optimizer.load_state_dict(own["optimizer"])
        self.memory.states = own["carried"]
        exchange.load_state(own["outer"], self.course.first)
        if own["seen"]:
            self.clock.sleep_until(own["seen"].time_s * self.clock.dilation)
        set_random_numbers(own, self.task.device)

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())

    def _tensors(self) -> dict[str, Tensor]:
        """Return the exchanged parameters and statistics by name."""
        named = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return {name: named[name] for name in self.outer.anchors}

    def _anchors(self) -> list[Tensor]:
        return list(self.outer.anchors.values())


@dataclass
class LocalReplayed(Gradients):
    """True sizes and traffic of rounds without computation: seeded noise in every bucket."""

    course: Course
    exchange: OuterExchange
    seed: int
    values: bool  # False: buckets are of shapes alone

    def __post_init__(self) -> None:
        noise = torch.Generator().manual_seed(self.seed)
        every = [memory for each in self.exchange.laid for memory in each if self.values]
        sizes = {id(each): sum(laid.buffer.numel() for laid in each.laid) for each in every}
        self._patterns = {key: torch.randn(size, generator=noise) for key, size in sizes.items()}

    def compute(self, step: int) -> float:
        self.exchange.submit(lambda fragment: None, self._patterns)
        return float("nan")


def own_replica(gather: Callable[[Any], list[Any]]) -> Any:
    """Return a factory, of (model, exchange, bucket_mb), of replicas with their own model."""
    make = partial(OwnReplica, gather=gather)
    return lambda model, exchange, bucket_mb: make(model)
