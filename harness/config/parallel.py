"""The choices of `conf/parallel`: what the workers of a run share among them, batch or model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.config.local_steps import LocalSteps
from harness.config.server import Server

ORDERS = ("gpipe", "1f1b")  # of micro-batches, in harness.engine.pipeline.schedule


@dataclass(frozen=True)
class Data:
    """Every worker has the whole model, and a part of the batch."""

    stages: ClassVar[int] = 1
    ranks: ClassVar[int] = 1  # that one model takes
    servers: ClassVar[int] = 0  # that hold the model
    program: ClassVar[str] = "harness.engine.training.build:whole_model_loop"  # of a rank


@dataclass(frozen=True)
class Split:
    """Every worker has the whole model, with its cuts compressed though nothing is sent.

    This is how the paper's own small experiments were made.
    """

    ranks: ClassVar[int] = 1
    servers: ClassVar[int] = 0
    program: ClassVar[str] = Data.program

    stages: int = 2
    cuts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stages, int) or isinstance(self.stages, bool) or self.stages < 2:
            raise ValueError(f"stages must be a whole number >= 2, got {self.stages!r}")
        if self.cuts is not None and not all(type(cut) is int for cut in self.cuts):
            raise ValueError(f"cuts must be numbers of layers, or null, got {list(self.cuts)}")


@dataclass(frozen=True)
class Pipeline(Split):
    """A worker has a stage of the model; `workers` / `stages` pipelines share the batch.

    Workers of one pipeline follow each other: rank = pipeline x stages + stage.
    """

    program: ClassVar[str] = "harness.engine.pipeline.build:stage_loop"

    schedule: str = "1f1b"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule not in ORDERS:
            allowed = " or ".join(ORDERS)
            raise ValueError(f"schedule must be {allowed}, got {self.schedule!r}")

    @property
    def ranks(self) -> int:  # type: ignore[override]
        return self.stages


Parallel = Data | Split | Pipeline | Server | LocalSteps
