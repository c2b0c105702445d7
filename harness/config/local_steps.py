"""Choice `local` of `conf/parallel`: workers train alone and exchange weights every `h` steps.

Each worker trains its own weights. Every `h` steps workers exchange how far these moved, and an
outer optimizer updates the weights in common (Stich, 2019; Douillard et al., 2023).
"""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from harness.config.parallel import Parallel

OUTER = ("nesterov", "momentum", "none")
PEERS = ("all", "pair")
PATTERNS = ("strided", "sequential")


@dataclass(frozen=True)
class LocalSteps(Parallel):
    """Settings of local steps; each worker has the whole model, with weights of its own.

    Raises ValueError for a value out of range, and names the nearest valid one if there is one.
    """

    kind: ClassVar[str] = "local"
    is_local: ClassVar[bool] = True
    is_charged: ClassVar[bool] = True

    h: int = 32  # steps per round; a round exchanges every fragment once
    outer: str = "nesterov"  # nesterov | momentum | none: variant of SGD of the outer optimizer
    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    fragments: int = 1  # parts of the model, exchanged in turn, h / fragments steps apart
    pattern: str = "strided"  # strided | sequential: assignment of layers to fragments
    lag: int = 0  # steps between sending a fragment and applying its mean
    blend: float = 0.0  # share of its own weights that a worker keeps in a fragment
    peers: str = "all"  # all | pair: average the weights of all workers, or of pairs
    warmup_rounds: int = 0  # initial rounds of one step, exchanged dense

    def __post_init__(self) -> None:
        for key, least in (("h", 1), ("fragments", 1), ("lag", 0), ("warmup_rounds", 0)):
            if type(value := getattr(self, key)) is not int or value < least:
                raise ValueError(f"{key} must be a whole number >= {least}, got {value!r}")
        for key, choices in (("outer", OUTER), ("pattern", PATTERNS), ("peers", PEERS)):
            if (value := getattr(self, key)) not in choices:
                raise ValueError(f"{key} must be {' or '.join(choices)}, got {value!r}")
        _check_number("outer_lr", self.outer_lr, "a number > 0", lambda x: x > 0)
        _check_number(
            "outer_momentum", self.outer_momentum, "a number in [0, 1)", lambda x: 0 <= x < 1
        )
        _check_number("blend", self.blend, "a number in [0, 1]", lambda x: 0 <= x <= 1)
        if self.outer == "none" and self.outer_momentum:
            raise ValueError(
                f"outer_momentum must be 0 where outer is none, got {self.outer_momentum}"
            )
        asked = self.outer, self.fragments, self.warmup_rounds
        if self.is_gossip and asked != ("momentum", 1, 0):
            raise ValueError(
                "peers=pair needs outer=momentum, fragments=1 and warmup_rounds=0, got "
                f"outer={self.outer}, fragments={self.fragments}, "
                f"warmup_rounds={self.warmup_rounds}"
            )
        if self.is_gossip and self.lag:
            raise ValueError(f"lag must be 0 where peers meet in pairs, got {self.lag}")
        self._check_fragments()

    @property
    def is_gossip(self) -> bool:
        return self.peers == "pair"

    def _check_fragments(self) -> None:
        if self.h % self.fragments:
            nearest = max(1, round(self.h / self.fragments)) * self.fragments
            raise ValueError(
                f"h must be a multiple of fragments={self.fragments}, as one is exchanged every "
                f"h / fragments steps, got {self.h}; nearest: {nearest}"
            )
        if self.lag >= self.steps_apart:
            raise ValueError(
                f"lag must be below h / fragments = {self.steps_apart}, as a fragment lands before "
                f"the next one is sent, got {self.lag}; nearest: {self.steps_apart - 1}"
            )

    @property
    def steps_apart(self) -> int:
        """Number of steps between two exchanges."""
        return self.h // self.fragments

    def exchanges(self, steps: int) -> int:
        """Return the number of exchanges that begin in the first `steps` steps at a fixed `h`."""
        warm = min(steps, self.warmup_rounds)
        return warm + (steps - warm + self.lag) // self.steps_apart

    def sampled_steps(self, first: int, spread: int) -> tuple[int, int]:
        """Return steps to sample: warm-up and first round, then `spread` rounded up to rounds."""
        return self.warmup_rounds + self.h, -(-spread // self.h) * self.h


def _check_number(key: str, value: object, allowed: str, holds: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not (number and holds(value)):  # type: ignore[operator]
        raise ValueError(f"{key} must be {allowed}, got {value!r}")
