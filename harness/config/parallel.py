"""Choices of `conf/parallel`: how the workers of a run share the batch or the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

ORDERS = ("gpipe", "1f1b")  # of micro-batches, in harness.engine.pipeline.engine


class Parallel:
    """Base of all choices, with default answers to the questions the engine asks of them.

    `harness.engine.programs` maps each choice to the program that its ranks run.
    """

    kind: ClassVar[str]  # name of the choice in conf/parallel
    servers: ClassVar[int] = 0  # nodes that hold the model for all workers
    has_cuts: ClassVar[bool] = False  # True if activations are compressed at cuts of the model
    is_local: ClassVar[bool] = False  # True if workers have weights of their own between exchanges
    is_charged: ClassVar[bool] = False  # True if compression is charged to an emulated device

    @property
    def stages(self) -> int:
        """Number of parts that the model is divided into."""
        return 1

    @property
    def cuts(self) -> Sequence[int] | None:
        """Index of the first layer of each later stage; None balances multiply-adds."""
        return None

    @property
    def ranks(self) -> int:
        """Number of workers that hold one model together."""
        return 1

    @property
    def levels(self) -> int:
        """Number of levels of an exchange: 1 among all workers, 2 inside and between nodes."""
        return 1

    @property
    def mode(self) -> str:
        """Mode in which a server applies gradients, "sync" or "async"; "" without a server."""
        return ""

    @property
    def lag(self) -> int:
        """Number of steps between sending gradients or weights and applying their mean."""
        return 0

    @property
    def is_gossip(self) -> bool:
        """True if workers exchange weights in pairs, so that no weights are in common."""
        return False

    @property
    def in_ring(self) -> bool:
        """True if all traffic is ring collectives over all workers."""
        return self.ranks == self.levels == 1 and not self.servers and not self.is_gossip

    @property
    def needs_everyone(self) -> bool:
        """True if ranks must communicate even with ranks that share no gradients with them."""
        return self.ranks > 1 or self.is_gossip

    @property
    def is_replayable(self) -> bool:
        """True if workers send only collectives that a recorded training can replay."""
        return self.is_charged and not self.is_gossip and self.levels == 1

    def sharing(self, workers_per_node: int) -> int:
        """Return how many workers of a node together send to other nodes what each counts."""
        return workers_per_node if self.levels == 1 else 1

    def exchanges(self, steps: int) -> int:
        """Return the number of exchanges that begin in the first `steps` steps."""
        return steps

    def sampled_steps(self, first: int, spread: int) -> tuple[int, int]:
        """Return how many steps to sample at the start and over the rest of a run, for a plan."""
        return first, spread


@dataclass(frozen=True)
class Data(Parallel):
    """Data parallelism: each worker has the whole model and a part of the batch."""

    kind: ClassVar[str] = "data"
    is_charged: ClassVar[bool] = True

    levels: int = 1

    def __post_init__(self) -> None:
        if type(self.levels) is not int or self.levels not in (1, 2):
            raise ValueError(f"levels must be 1 or 2, got {self.levels!r}")


@dataclass(frozen=True)
class Split(Parallel):
    """Simulated pipeline: each worker has the whole model and compresses at cuts, sending nothing.

    The paper's own small experiments ran in this way.
    """

    kind: ClassVar[str] = "split"
    has_cuts: ClassVar[bool] = True

    stages: int = 2
    cuts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stages, int) or isinstance(self.stages, bool) or self.stages < 2:
            raise ValueError(f"stages must be a whole number >= 2, got {self.stages!r}")
        if self.cuts is not None and not all(type(cut) is int for cut in self.cuts):
            raise ValueError(f"cuts must be numbers of layers, or null, got {list(self.cuts)}")


@dataclass(frozen=True)
class Pipeline(Split):
    """Pipeline: each worker has one stage; `workers` / `stages` pipelines share the batch.

    The workers of a pipeline have consecutive ranks: rank = pipeline x stages + stage.
    """

    kind: ClassVar[str] = "pipeline"

    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule not in ORDERS:
            allowed = " or ".join(ORDERS)
            raise ValueError(f"schedule must be {allowed}, got {self.schedule!r}")

    @property
    def ranks(self) -> int:
        return self.stages
