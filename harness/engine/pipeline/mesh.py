"""The ranks of a run as pipelines side by side: groups along each, and across them by stage."""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from harness.config.backends import BETWEEN_CPUS
from harness.engine.pipeline.channel import GroupChannel

ACROSS, ALONG = "dp", "pp"  # the same stage of all pipelines; the stages of one


def meshed(stages: int, timeout: timedelta, backend: str | None = BETWEEN_CPUS.name) -> DeviceMesh:
    """Create the mesh of all ranks, [pipelines, stages] or [nodes, workers of a node].

    All ranks call it together. `backend` is that of the rows, None for the run's own. Groups along
    a pipeline send between CPUs, whatever the device; see `harness.config.backends`.
    """
    ranks = torch.arange(dist.get_world_size()).view(-1, stages)
    across = _own([column.tolist() for column in ranks.T], timeout, None)
    along = _own([row.tolist() for row in ranks], timeout, backend)
    return DeviceMesh.from_group([across, along], "cpu", ranks, mesh_dim_names=(ACROSS, ALONG))


@dataclass
class PacketPipelineGroup:
    """The stages of this rank's pipeline, which are those of `group`."""

    group: dist.ProcessGroup
    device: torch.device

    def __post_init__(self) -> None:
        self.stage, self.stages = self.group.rank(), self.group.size()

    def channel(self, stage: int, name: str) -> GroupChannel:
        return GroupChannel(self.group, stage, name, self.device)


def everyone(timeout: timedelta, backend: str | None = BETWEEN_CPUS.name) -> dist.ProcessGroup:
    """Create the process group of all ranks, by default on CPUs. None means the run's backend."""
    return _own([list(range(dist.get_world_size()))], timeout, backend)


def _own(lines: list[list[int]], timeout: timedelta, backend: str | None) -> dist.ProcessGroup:
    """Create a group per line on all ranks, each with `timeout`; return this rank's."""
    groups = [dist.new_group(line, timeout=timeout, backend=backend) for line in lines]
    [own] = [group for group in groups if isinstance(group, dist.ProcessGroup)]
    return own
