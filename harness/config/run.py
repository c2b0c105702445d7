"""One run, as everything below the command line sees it: typed, frozen, and built once.

`harness.config.settings` builds it from a configuration: every value is of the type declared here
and in the range beside it. Compressor, controller and activations keep state, so a run has what
makes one: every rank makes its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from torch import nn

from compressors.activations.base import Activations
from compressors.base import Compressor
from controllers.base import Controller
from harness.config.lanes import Lanes
from harness.config.local_steps import LocalSteps
from harness.config.network import NetworkChoice
from harness.config.parallel import Data, Pipeline, Split
from harness.config.schedules import Schedule
from harness.config.server import Server
from harness.config.typed import MOST_WORKERS, Must, is_path, require
from harness.config.watch import Watch
from harness.workloads.buckets import BUCKET_MB, BucketMb, scaled
from harness.workloads.data.base import DataSet
from harness.workloads.fusion import Fusion
from harness.workloads.models.base import Architecture, Times
from profiles.base import Profile

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

Parallel = Data | Split | Pipeline | Server | LocalSteps


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

    def lanes(self, compressor: Compressor, is_emulated: bool) -> Lanes:
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
class Run:
    """Every key that decides a result; `replace` of dataclasses makes another of it."""

    label: str  # of its method
    seed: Whole  # of weights, batches and compressor
    network_seed: Whole  # of what the network does at random
    workers: Workers
    workers_per_node: Count
    steps: Count
    batch_size: Count  # per worker and micro-batch
    accumulate: Count  # micro-batches of a step
    precision: Literal["float32", "bf16"]
    device: Literal["auto", "cpu", "cuda"]
    backend: Literal["auto", "gloo", "nccl"]  # of collectives over packets
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
    target: Target
    optimizer: Optimizer
    emulation: Emulation
    timeouts: Timeouts
    reuse_training: bool  # of an equal run, where the network has no say in it
    deciding: Mapping[str, Any]  # what a run that goes on from this one has to have equal
    training: Callable[[], Mapping[str, object]]  # likewise one that reuses its training

    model: Architecture
    times: Times | None  # of the model's computation
    dataset: DataSet
    parallel: Parallel
    profile: Profile
    network: NetworkChoice
    watch: Watch | None
    compressor: Callable[[], Compressor]  # makes one, as do the two below
    controller: Callable[[], Controller]
    activations: Callable[[], Activations]

    @property
    def server(self) -> Server:
        """`parallel`, of a run with a parameter server."""
        assert isinstance(self.parallel, Server)
        return self.parallel

    @property
    def nodes(self) -> int:
        """Number of nodes: the workers', and one for each server."""
        return self.workers // self.workers_per_node + self.parallel.servers

    @cached_property
    def bucket_mb(self) -> BucketMb:
        """Size of a bucket; a stand-in's is smaller by the ratio of parameters to its original."""
        scale = getattr(self.model, "scale", lambda shape, classes: 1.0)
        return self.bucket_mb_of(scale(self.dataset.shape, self.dataset.classes))

    def bucket_mb_of(self, scale: float) -> BucketMb:
        """Size of a bucket of a model with `scale` times the elements of its original."""
        mb = self.full_bucket_mb
        if self.fusion == "uncompressed":
            return scaled(mb, scale)
        maker: Any = self.compressor()
        return Fusion(scale * (BUCKET_MB if mb is None else mb), maker.elements)

    def shapes(self) -> nn.Module:
        """The model on the meta device, of no values."""
        with torch.device("meta"):
            return self.model.build(self.dataset.shape, self.dataset.classes)

    def find_files(self) -> None:
        """FileNotFoundError where data or weights are not here."""
        self.dataset.check()
        getattr(self.model, "check_files", lambda: None)()

    def gpus(self, workers: int) -> int:
        """GPUs that `workers` of one machine need: one each, or over gloo one for all."""
        return 1 if self.backend == "gloo" else self.network.gpus(workers)

    def device_type(self, workers: int) -> str:
        """`cuda`, where this machine has the GPUs that `workers` on it need; or `cpu`."""
        few = torch.cuda.device_count() < self.gpus(workers)
        return "cpu" if self.device == "cpu" or (self.device == "auto" and few) else "cuda"

    def seed_of(self, rank: int) -> int:
        """Seed of what differs between ranks, such as dropout, and not between runs."""
        return self.seed * self.workers + rank
