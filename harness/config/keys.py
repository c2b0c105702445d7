"""Plain keys of a run and its sections, with their types and ranges.

`harness.config.settings` checks a command line against them before it builds any part. This module
does not import torch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from harness.config.backends import BackendChoice
from harness.config.lanes import Lanes
from harness.config.schedules import Schedule
from harness.config.typed import MOST_WORKERS, Must, is_path, require

if TYPE_CHECKING:
    from compressors.base import Compressor

BETA_2 = 0.999  # default in conf/config.yaml

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
Quality = Annotated[float, Must("a number in [-1e20, 1e20]", lambda x: -1e20 <= x <= 1e20)]
Slowdown = Annotated[float, Must("a number in [1, 1000]", lambda x: 1 <= x <= 1000)]
# poll(2) waits for at most 2^31 ms.
Seconds = Annotated[float, Must("a number in (0, 2000000]", lambda x: 0 < x <= 2_000_000)]
BucketSize = Annotated[float, Must("a number in [0, 1000000]", lambda x: 0 <= x <= 1_000_000)]
Share = Annotated[float, Must("a number in [0, 1]", lambda x: 0 <= x <= 1)]
BelowOne = Annotated[float, Must("a number in [0, 1)", lambda x: 0 <= x < 1)]
Path = Annotated[str, Must("a path", lambda path: is_path(path))]


@dataclass(frozen=True)
class Target:
    """Target quality of a run: a metric, its value, and if the run ends when it is reached."""

    metric: str | None  # None: the metric of the data set
    value: Quality | None
    ends_run: bool  # True: the first evaluation that reaches it ends the run


@dataclass(frozen=True)
class Optimizer:
    """Settings of the optimizer that each rank, or the parameter server, uses."""

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
        """Return the learning rate of `step`, which counts from 0 to `steps` - 1."""
        return self.lr * self.schedule.factor(step, steps)


@dataclass(frozen=True)
class Emulation:
    """Settings of the emulated device and of the speed of emulated time."""

    dilation: Dilation  # real seconds per emulated second
    compute: Literal["measured", "paced", "replay"]
    compression: Literal["device", "own"] | None  # None: "device" if it is emulated
    hooks: Literal["wait"] | None  # None: as the compressor needs
    interference: Slowdown
    priority: Literal["auto", "none"] = "auto"  # auto: ranks run before other programs

    @property
    def prefers_ranks(self) -> bool:
        """True if ranks get priority over other programs, as far as the user's rights allow it."""
        return self.priority == "auto" and not self.is_measured

    @property
    def is_measured(self) -> bool:
        """True if computation takes its real time on this machine."""
        return self.compute == "measured"

    @property
    def is_replay(self) -> bool:
        """True if nothing is computed and ranks exchange random gradients of the true shapes."""
        return self.compute == "replay"

    def lanes(self, compressor: "Compressor", is_emulated: bool) -> Lanes:
        """Return how compression shares the device; `compressor` decides the null settings.

        `is_emulated` tells if the device is emulated. A real device schedules its work itself.
        """
        where, waits = self.compression, compressor.waits or self.hooks == "wait"
        on_device = is_emulated if where is None else where == "device"
        return Lanes(on_device, waits, self.interference)


@dataclass(frozen=True)
class Timeouts:
    """Time limits of a run, in real seconds."""

    start_s: Seconds
    exchange_s: Seconds | None  # None: depends on the size of messages
    stop_s: Seconds
    run_s: Seconds


@dataclass(frozen=True, kw_only=True)
class RunKeys:
    """Keys of a run that belong to no section."""

    seed: Whole  # for weights, batches and compressor
    network_seed: Whole  # for random events of the network
    workers: Workers
    workers_per_node: Count
    steps: Count
    batch_size: Count  # per worker and micro-batch
    accumulate: Count  # micro-batches per step
    precision: Literal["float32", "bf16"]
    device: Literal["auto", "cpu", "cuda"]
    backend: BackendChoice  # for collectives over packets
    eval_every: Count
    checkpoint_every: Whole | None  # 0: only at the end; None: never
    initial_weights: Path | None
    resume_from: Path | None
    error_feedback: bool
    residual_decay: Share
    overlap: Literal["per_bucket", "after_backward"]
    full_bucket_mb: BucketSize | None  # for the original model; 0: one bucket per tensor
    fusion: Literal["uncompressed", "compressed"]  # size that fills a bucket
    agree: Literal["local", "min", "mean"]  # how workers agree on one density
    reuse_training: bool  # True: reuse an equal run's training if the network cannot affect it
