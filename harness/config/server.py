"""The choice `server` of `conf/parallel`: how trainers and the server go along with each other."""

from dataclasses import dataclass
from typing import ClassVar

MODES = ("sync", "async")
DRAINS = ("zero", "flush")


@dataclass(frozen=True)
class Server:
    """`workers` trainers, each on its node, and behind them one node for the server."""

    stages: ClassVar[int] = 1  # of the model
    ranks: ClassVar[int] = 1  # that one model takes
    servers: ClassVar[int] = 1
    program: ClassVar[str] = "harness.engine.parameter_server.build:build_trainer"

    mode: str = "sync"  # sync: of all trainers' gradients the mean | async: each as it comes
    threads: int = 1  # of a trainer, each with a model; they share residual and thresholds
    pull_every: int = 1  # steps of a thread
    consistent_pull: bool = False  # true: nothing is applied while weights are copied for a pull
    staleness_bound: int | None = None  # steps that a thread may be ahead of the slowest
    drain: str = "zero"  # zero | flush: what becomes of a layer's residual every drain_period steps
    drain_period: float | None = None  # expected steps between drains of a layer; null: never
    restarts: int = 0  # of each trainer that has died, in a new process, without its residual
    # Real seconds of silence; null: timeouts.exchange_s, or by size.
    session_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for key, choices in (("mode", MODES), ("drain", DRAINS)):
            if (value := getattr(self, key)) not in choices:
                raise ValueError(f"{key} must be {' or '.join(choices)}, got {value!r}")
        for key, least in (("threads", 1), ("pull_every", 1), ("restarts", 0)):
            _check_whole(key, getattr(self, key), least)
        if self.staleness_bound is not None:
            _check_whole("staleness_bound", self.staleness_bound, 0, ", or null")
        if type(self.consistent_pull) is not bool:
            raise ValueError(f"consistent_pull must be true or false, got {self.consistent_pull!r}")
        for key, lowest in (("drain_period", 1), ("session_timeout_s", 0.1)):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and value >= lowest):
                raise ValueError(f"{key} must be a number >= {lowest}, or null, got {value!r}")

    @property
    def is_sync(self) -> bool:
        """True if the server waits for all trainers, and applies the mean."""
        return self.mode == "sync"

    @property
    def sessions(self) -> int:
        """Number of sessions of one trainer."""
        return self.threads


def _check_whole(key: str, value: object, least: int, more: str = "") -> None:
    if type(value) is not int or value < least:
        raise ValueError(f"{key} must be a whole number >= {least}{more}, got {value!r}")
