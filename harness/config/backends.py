"""The backends of torch's process groups: what a run may choose, and facts about each.

Every other module asks here. `harness.engine.exchange.backends` has the code of their collectives.
This module needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BackendChoice = Literal["auto", "gloo", "nccl"]


@dataclass(frozen=True)
class BackendFacts:
    """One backend: where it sends from, how its processes look, and the shape of its costs."""

    name: str
    device_type: str  # cpu | cuda: of the tensors that it sends
    shares_gpus: bool  # True if several ranks may compute on one GPU
    threads: tuple[str, ...]  # beginnings of the names of its threads
    variables: tuple[str, ...]  # of the environment, which name the network interface
    size_mismatch: str  # in its last words, if ranks bring collectives of unlike sizes
    segment_bytes: int  # most that an all-reduce sends and adds up at a time; 0 if it is pipelined
    segments_per_rank: int  # least number of segments of each rank's part of an all-reduce
    segments_under_way: int  # segments that a rank sends at a time
    chunk_bytes: int  # that the all-gather passes on at a time


# Its all-reduce is a ring of segments (gloo/allreduce.h, kMaxSegmentSize). Its broadcast is a
# binomial tree of whole messages, all sends of a rank at once (gloo/broadcast.cc). Its reduce is a
# ring in which every rank sends all segments but two, and then a gather (gloo/reduce.cc). The
# all-gather is our own: chunks are small enough to pipeline, and large enough to send.
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
# Its collectives are pipelined rings. It cannot send both ways between two ranks in an order that
# only the data decides, so messages of pipelines go between CPUs whatever the device.
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
    """Return the backend of `choice`; auto takes the one for tensors on `device_type`."""
    fitting = BETWEEN_GPUS if device_type == BETWEEN_GPUS.device_type else BETWEEN_CPUS
    return fitting if choice == "auto" else BACKENDS[choice]
