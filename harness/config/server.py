"""Choice `server` of `conf/parallel`: a parameter server, and how it applies gradients."""

from dataclasses import dataclass
from typing import ClassVar

from harness.config.parallel import Parallel

MODES = ("sync", "async")


@dataclass(frozen=True)
class Server(Parallel):
    """Settings of a parameter server on its own node, with `workers` trainers on theirs."""

    kind: ClassVar[str] = "server"
    servers: ClassVar[int] = 1

    mode: str = "sync"  # sync: apply the mean of all gradients | async: each on arrival
    threads: int = 1  # per trainer; each has a model, all share residual and thresholds
    drain_period: float | None = (
        None  # expected steps between drains of a layer's residual; null: never
    )

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be {' or '.join(MODES)}, got {self.mode!r}")
        if type(self.threads) is not int or self.threads < 1:
            raise ValueError(f"threads must be a whole number >= 1, got {self.threads!r}")
        period = self.drain_period
        number = isinstance(period, int | float) and not isinstance(period, bool)
        if period is not None and not (number and period >= 1):
            raise ValueError(f"drain_period must be a number >= 1, or null, got {period!r}")

    @property
    def is_sync(self) -> bool:
        """True if the server waits for all trainers and applies the mean of their gradients."""
        return self.mode == "sync"
