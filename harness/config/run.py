"""Typed and frozen settings of one run, which all code below the command line uses.

`harness.config.settings` builds a `Run` from a configuration. Compressor, controller and
activations keep state, so a run has factories for them and each rank calls these.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn

from compressors.activations.base import Activations
from compressors.base import Compressor
from controllers.base import Controller
from harness.config.backends import BACKENDS
from harness.config.keys import Emulation, Optimizer, RunKeys, Target, Timeouts
from harness.config.network import NetworkChoice
from harness.config.parallel import Parallel
from harness.config.server import Server
from harness.config.watch import Watch
from harness.workloads.buckets import BUCKET_MB, BucketMb, scaled
from harness.workloads.data.base import DataSet
from harness.workloads.fusion import Fusion
from harness.workloads.models.base import Architecture, Times
from profiles.base import Profile


@dataclass(frozen=True, kw_only=True)
class Run(RunKeys):
    """All settings that decide a run's result. Use `dataclasses.replace` to change some."""

    label: str  # name of its method
    target: Target
    optimizer: Optimizer
    emulation: Emulation
    timeouts: Timeouts
    deciding: Mapping[str, Any]  # settings that a resuming run must share
    training: Callable[
        [], Mapping[str, object]
    ]  # settings that a run must share to reuse its training

    model: Architecture
    times: Times | None  # published times of the model's computation
    dataset: DataSet
    parallel: Parallel
    profile: Profile
    network: NetworkChoice
    watch: Watch | None
    compressor: Callable[[], Compressor]  # factory, as are the two below
    controller: Callable[[], Controller]
    activations: Callable[[], Activations]

    @property
    def server(self) -> Server:
        """Settings of the parameter server; only for runs that have one."""
        assert self.parallel.servers
        return cast(Server, self.parallel)

    @property
    def nodes(self) -> int:
        """Number of nodes: those of the workers, and one for each server."""
        return self.workers // self.workers_per_node + self.parallel.servers

    @cached_property
    def bucket_mb(self) -> BucketMb:
        """Bucket size; for a stand-in model it is reduced in proportion to the parameters."""
        scale = getattr(self.model, "scale", lambda shape, classes: 1.0)
        return self.bucket_mb_of(scale(self.dataset.shape, self.dataset.classes))

    def bucket_mb_of(self, scale: float) -> BucketMb:
        """Return the bucket size for a model with `scale` times the elements of the original."""
        mb = self.full_bucket_mb
        if self.fusion == "uncompressed":
            return scaled(mb, scale)
        maker: Any = self.compressor()
        return Fusion(scale * (BUCKET_MB if mb is None else mb), maker.elements)

    def shapes(self) -> nn.Module:
        """Build the model on the meta device: shapes without values."""
        with torch.device("meta"):
            return self.model.build(self.dataset.shape, self.dataset.classes)

    def find_files(self) -> None:
        """Raise FileNotFoundError if data or pretrained weights are missing on this machine."""
        self.dataset.check()
        getattr(self.model, "check_files", lambda: None)()

    def gpus(self, workers: int) -> int:
        """Return the GPUs that `workers` of one machine need: one each, or one if they share it."""
        shares = self.backend in BACKENDS and BACKENDS[self.backend].shares_gpus
        return 1 if shares else self.network.gpus(workers)

    def device_type(self, workers: int) -> str:
        """Return "cuda" or "cpu"; "auto" means "cuda" if this machine has GPUs for `workers`."""
        few = torch.cuda.device_count() < self.gpus(workers)
        return "cpu" if self.device == "cpu" or (self.device == "auto" and few) else "cuda"

    def seed_of(self, rank: int) -> int:
        """Return the seed of `rank` for effects that must differ between ranks, such as dropout."""
        return self.seed * self.workers + rank
