"""The choices of `conf/parallel`: whether the workers of a run share the batch or the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

ORDERS = ("gpipe", "1f1b")  # of micro-batches, in harness.engine.pipeline.schedule


class Parallel:
    """Base of the choices, with the answers that the rest of the code asks of any of them.

    A choice overrides the answers that differ. `harness.engine.programs` has the program of each.
    """

    kind: ClassVar[str]  # name of the choice in conf/parallel
    servers: ClassVar[int] = 0  # nodes that hold the model for all workers
    has_cuts: ClassVar[bool] = False  # True if activations are compressed at cuts of the model
    is_local: ClassVar[bool] = False  # True if workers have weights of their own between exchanges
    is_charged: ClassVar[bool] = False  # True if compression is charged to an emulated device

    @property
    def stages(self) -> int:
        """Parts of the model."""
        return 1

    @property
    def cuts(self) -> Sequence[int] | None:
        """Numbers of the layers that stages begin with; None for equal multiply-adds."""
        return None

    @property
    def ranks(self) -> int:
        """Workers that hold one model together."""
        return 1

    @property
    def mode(self) -> str:
        """Mode in which a server applies gradients, sync or async. Empty without a server."""
        return ""

    @property
    def lag(self) -> int:
        """Steps between sending gradients or weights and applying their mean."""
        return 0

    @property
    def is_gossip(self) -> bool:
        """True if workers exchange weights in pairs, so that none are in common."""
        return False

    @property
    def in_ring(self) -> bool:
        """True if all traffic is ring collectives over all workers."""
        return self.ranks == 1 and not self.servers and not self.is_gossip

    @property
    def needs_everyone(self) -> bool:
        """True if ranks that exchange no gradients with each other still communicate."""
        return self.ranks > 1 or self.is_gossip

    @property
    def is_replayable(self) -> bool:
        """True if recorded collectives are all that workers send, so that a curve replays it."""
        return self.is_charged and not self.is_gossip

    def exchanges(self, steps: int) -> int:
        """Number of exchanges that begin in the first `steps` steps."""
        return steps

    def sampled_steps(self, first: int, spread: int) -> tuple[int, int]:
        """Steps to look at, at the beginning and over the rest, if a plan wants that many."""
        return first, spread


@dataclass(frozen=True)
class Data(Parallel):
    """Every worker has the whole model, and a part of the batch."""

    kind: ClassVar[str] = "data"
    is_charged: ClassVar[bool] = True


@dataclass(frozen=True)
class Split(Parallel):
    """Every worker has the whole model, and compresses at its cuts, but sends nothing there.

    The paper's own small experiments were made in this way.
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
    """Every worker has a stage of the model; `workers` / `stages` pipelines share the batch.

    Workers of one pipeline have consecutive ranks: rank = pipeline x stages + stage.
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
