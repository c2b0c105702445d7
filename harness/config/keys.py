"""Plain keys of a run and its sections, with their types and ranges.

`harness.config.settings` checks a command line against them before it builds any part. Importing
this file needs no torch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from harness.config.backends import BackendChoice
from harness.config.lanes import Lanes
from harness.config.schedules import Schedule
from harness.config.typed import MOST_WORKERS, Must, is_path, require

if TYPE_CHECKING:
    from compressors.base import Compressor

BETA_2 = 0.999  # as conf/config.yaml has it

Whole = Annotated[int, Must("a whole number in [0, 2^32)", lambda n: 0 <= n < 2**32)]
Count = Annotated[int, Must("a whole number in [1, 2^32)", lambda n: 1 <= n < 2**32)]
Workers = Annotated[
    int, Must(f"a whole number in [1, {MOST_WORKERS}]", lambda n: 1 <= n <= MOST_WORKERS)
]
# Weights are float32, which ends at 3.4e38: optimizers multiply and divide rates of at most 1e20.
Rate = Annotated[float, Must("a number in [0, 1e20]", lambda x: 0 <= x <= 1e20)]
Norm = Annotated[float, Must("a number in (0, 1e20]", lambda x: 0 < x <= 1e20)]
# Links are sampled in emulated seconds, and processes are scheduled in real milliseconds.
# Settings.run replaces auto.
Dilation = Annotated[
    float,
    Must(
        "a number in [0.001, 10000], or auto for paced or replayed training on one machine",
        lambda x: 0.001 <= x <= 10_000,
    ),
]
Slowdown = Annotated[float, Must("a number in [1, 1000]", lambda x: 1 <= x <= 1000)]
# poll(2) waits for at most 2^31 ms.
Seconds = Annotated[float, Must("a number in (0, 2000000]", lambda x: 0 < x <= 2_000_000)]
BucketSize = Annotated[float, Must("a number in [0, 1000000]", lambda x: 0 <= x <= 1_000_000)]
Share = Annotated[float, Must("a number in [0, 1]", lambda x: 0 <= x <= 1)]
BelowOne = Annotated[float, Must("a number in [0, 1)", lambda x: 0 <= x < 1)]
Path = Annotated[str, Must("a path", lambda path: is_path(path))]


@dataclass(frozen=True)
class Target:
    """Quality that a run is timed to."""

    metric: str | None  # None: the data set's
    value: float | None
    ends_run: bool  # at the first evaluation that meets it


@dataclass(frozen=True)
class Optimizer:
    """Settings of the optimizer, of every rank or of the server."""

    kind: Literal["sgd", "adam", "adamw"]
    lr: Rate
    momentum: BelowOne
    beta_2: BelowOne
    weight_decay: Share
    nesterov: bool
    clip_norm: Norm | None
    schedule: Schedule

    def __post_init__(self) -> None:
        told = f"one with factor(step, steps), which {type(self.schedule).__name__} has not"
        require(hasattr(self.schedule, "factor"), "optimizer.schedule", self.schedule, told)

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of `step` of 0 .. `steps` - 1."""
        return self.lr * self.schedule.factor(step, steps)


@dataclass(frozen=True)
class Emulation:
    """Settings of the emulated device and of how fast time goes by."""

    dilation: Dilation  # real seconds per emulated second
    compute: Literal["measured", "paced", "replay"]
    compression: Literal["device", "own"] | None  # None: of the device, where that is emulated
    hooks: Literal["wait"] | None  # None: the compressor's
    interference: Slowdown
    priority: Literal["auto", "none"] = "auto"  # of ranks over other programs

    @property
    def prefers_ranks(self) -> bool:
        """True if ranks run before other programs, as far as this user may arrange it."""
        return self.priority == "auto" and not self.is_measured

    @property
    def is_measured(self) -> bool:
        """Computation takes what it takes here."""
        return self.compute == "measured"

    @property
    def is_replay(self) -> bool:
        """Nothing is computed: what is exchanged is noise of true shapes."""
        return self.compute == "replay"

    def lanes(self, compressor: "Compressor", is_emulated: bool) -> Lanes:
        """Lanes of an exchange; settings that are null are the compressor's choice.

        A device that is not emulated shares itself out.
        """
        where, waits = self.compression, compressor.waits or self.hooks == "wait"
        on_device = is_emulated if where is None else where == "device"
        return Lanes(on_device, waits, self.interference)


@dataclass(frozen=True)
class Timeouts:
    """Real seconds."""

    start_s: Seconds
    exchange_s: Seconds | None  # None: by size
    stop_s: Seconds
    run_s: Seconds


@dataclass(frozen=True, kw_only=True)
class RunKeys:
    """Keys of a run that belong to no section."""

    seed: Whole  # of weights, batches and compressor
    network_seed: Whole  # of what the network does at random
    workers: Workers
    workers_per_node: Count
    steps: Count
    batch_size: Count  # per worker and micro-batch
    accumulate: Count  # micro-batches of a step
    precision: Literal["float32", "bf16"]
    device: Literal["auto", "cpu", "cuda"]
    backend: BackendChoice  # of collectives over packets
    eval_every: Count
    checkpoint_every: Whole | None  # 0: only at the end; None: never
    initial_weights: Path | None
    resume_from: Path | None
    error_feedback: bool
    residual_decay: Share
    overlap: Literal["per_bucket", "after_backward"]
    full_bucket_mb: BucketSize | None  # of a stand-in its original's; 0: every tensor is one
    fusion: Literal["uncompressed", "compressed"]  # what fills a bucket
    agree: Literal["local", "min", "mean"]  # whether workers agree on one density
    reuse_training: bool  # of an equal run, where the network has no say in it
