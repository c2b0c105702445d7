"""Facts about torch's collective backends (gloo, nccl), and which of them a run may choose.

All modules that depend on the backend read them here. The code of the collectives is in
`harness.engine.exchange.backends`. This module does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BackendChoice = Literal["auto", "gloo", "nccl"]


@dataclass(frozen=True)
class BackendFacts:
    """Facts about one backend: its device, its traces in a process, and its message sizes."""

    name: str
    device_type: str  # cpu | cuda: where its tensors are
    shares_gpus: bool  # True if several ranks may compute on one GPU
    threads: tuple[str, ...]  # prefixes of its threads' names
    variables: tuple[str, ...]  # environment variables that select the network interface
    size_mismatch: str  # text in its abort message if collectives differ in size
    segment_bytes: int  # largest segment of an all-reduce; 0 if it is pipelined
    segments_per_rank: int  # fewest segments of each rank's part of an all-reduce
    segments_under_way: int  # segments in flight per rank
    chunk_bytes: int  # unit that the all-gather forwards


# Gloo's all-reduce is a ring of segments (gloo/allreduce.h, kMaxSegmentSize). Its broadcast is a
# binomial tree of whole messages, all sends of a rank at once (gloo/broadcast.cc). Its reduce is a
# ring in which every rank sends all segments but two, and then a gather (gloo/reduce.cc). The
# all-gather is ours: its chunks are small enough to pipeline and large enough to send efficiently.
BETWEEN_CPUS = BackendFacts(
    name="gloo",
    device_type="cpu",
    shares_gpus=True,
    threads=("gloo_tcp_loop", "pt_gloo_runloop"),
    variables=("GLOO_SOCKET_IFNAME",),
    size_mismatch="preamble",
    segment_bytes=1 << 20,
    segments_per_rank=2,
    segments_under_way=2,
    chunk_bytes=512 * 1024,
)
# NCCL's collectives are pipelined rings. Two ranks cannot send to each other in an order that
# depends on the data, so pipeline stages use gloo on any device.
BETWEEN_GPUS = BackendFacts(
    name="nccl",
    device_type="cuda",
    shares_gpus=False,
    threads=(),
    variables=("NCCL_SOCKET_IFNAME",),
    size_mismatch="",
    segment_bytes=0,
    segments_per_rank=1,
    segments_under_way=1,
    chunk_bytes=0,
)
BACKENDS: Mapping[str, BackendFacts] = {each.name: each for each in (BETWEEN_CPUS, BETWEEN_GPUS)}


def backend_for(device_type: str, choice: str = "auto") -> BackendFacts:
    """Return the backend named `choice`; "auto" picks the one for tensors on `device_type`."""
    fitting = BETWEEN_GPUS if device_type == BETWEEN_GPUS.device_type else BETWEEN_CPUS
    return fitting if choice == "auto" else BACKENDS[choice]
