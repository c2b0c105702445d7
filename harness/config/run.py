"""One run, as everything below the command line sees it: typed, frozen, and built once.

`harness.config.settings` builds it from a configuration. Compressor, controller and activations
keep state, so a run has functions that make them: every rank makes its own.
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
    """Every key that decides a result; `replace` of dataclasses makes another of it."""

    label: str  # of its method
    target: Target
    optimizer: Optimizer
    emulation: Emulation
    timeouts: Timeouts
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
        """Return `parallel` of a run with a parameter server."""
        assert self.parallel.servers
        return cast(Server, self.parallel)

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
        """Return the GPUs that `workers` of one machine need: one each, or one that all share."""
        shares = self.backend in BACKENDS and BACKENDS[self.backend].shares_gpus
        return 1 if shares else self.network.gpus(workers)

    def device_type(self, workers: int) -> str:
        """`cuda`, where this machine has the GPUs that `workers` on it need; or `cpu`."""
        few = torch.cuda.device_count() < self.gpus(workers)
        return "cpu" if self.device == "cpu" or (self.device == "auto" and few) else "cuda"

    def seed_of(self, rank: int) -> int:
        """Seed of what differs between ranks, such as dropout, and not between runs."""
        return self.seed * self.workers + rank
