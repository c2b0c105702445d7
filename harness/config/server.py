"""The choice `server` of `conf/parallel`: the order in which a server applies gradients."""

from dataclasses import dataclass
from typing import ClassVar

MODES = ("sync", "async")
DRAINS = ("zero", "flush")


@dataclass(frozen=True)
class Server:
    """`workers` trainers, each on its node, and behind them one node for the server."""

    stages: ClassVar[int] = 1  # of the model
    ranks: ClassVar[int] = 1  # that have one model together
    servers: ClassVar[int] = 1
    program: ClassVar[str] = "harness.engine.parameter_server.build:build_trainer"

    mode: str = "sync"  # sync: the mean of all trainers' gradients | async: each as it comes
    threads: int = 1  # of a trainer, each with a model; they share residual and thresholds
    staleness_bound: int | None = None  # steps that a thread may be ahead of the slowest
    drain: str = "zero"  # zero | flush: what becomes of a layer's residual every drain_period steps
    drain_period: float | None = None  # expected steps between drains of a layer; null: never

    def __post_init__(self) -> None:
        for key, choices in (("mode", MODES), ("drain", DRAINS)):
            if (value := getattr(self, key)) not in choices:
                raise ValueError(f"{key} must be {' or '.join(choices)}, got {value!r}")
        if type(self.threads) is not int or self.threads < 1:
            raise ValueError(f"threads must be a whole number >= 1, got {self.threads!r}")
        bound, period = self.staleness_bound, self.drain_period
        if bound is not None and (type(bound) is not int or bound < 0):
            raise ValueError(f"staleness_bound must be a whole number >= 0, or null, got {bound!r}")
        number = isinstance(period, int | float) and not isinstance(period, bool)
        if period is not None and not (number and period >= 1):
            raise ValueError(f"drain_period must be a number >= 1, or null, got {period!r}")

    @property
    def is_sync(self) -> bool:
        """True if the server waits for all trainers, and applies the mean."""
        return self.mode == "sync"
