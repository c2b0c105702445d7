"""One iteration of each method, on the time line: what is grouped, compressed, sent, and when."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from compressors.covap import shards
from harness.fidelity import costs
from harness.fidelity.fabric import Fabric
from harness.fidelity.layers import Tensor
from harness.fidelity.testbed import Compute, Device
from harness.fidelity.timeline import Iteration, Overlap, Unit, iteration
from harness.training.gradients import MIB, bucket_names

Group = Sequence[Tensor]
DDP_MB = None  # DDP's own buckets: 1 MiB, then 25
EACH, ALL = 0.0, 1e6  # MiB: every tensor for itself, all at once
BUFFER_MB = 25.0  # of ACP-SGD, before it is scaled


def _nothing(group: Group) -> float:
    return 0.0


@dataclass(frozen=True)
class Job:
    """A model on one testbed; `tensors` in order of registration."""

    tensors: tuple[Tensor, ...]
    compute: Compute
    fabric: Fabric

    def run(
        self,
        groups: Sequence[Group],
        send: Callable[[Group], float],
        overlap: Overlap = "overlapped",
        compress: Callable[[Group], float] = _nothing,
        decompress_s: float = 0.0,
    ) -> Iteration:
        """`groups` in the order in which they are ready; functions give a group's seconds.

        A layer's share of backward is its share of the forward pass's multiply-adds.
        """
        each_s = self.compute.backward_s / sum(tensor.multiply_adds for tensor in self.tensors)
        units = [
            Unit(
                each_s * sum(tensor.multiply_adds for tensor in group),
                compress(group),
                send(group),
            )
            for group in groups
        ]
        return iteration(self.compute.forward_s, units, overlap, decompress_s)

    def buckets(self, bucket_mb: float | None = DDP_MB) -> Sequence[Group]:
        """DDP's rule."""
        known = {tensor.name: tensor for tensor in self.tensors}
        sizes = {name: tensor.elements for name, tensor in known.items()}
        return [[known[name] for name in names] for names in bucket_names(sizes, bucket_mb)]

    def scaled_buffers(self, rank: int, side: int, buffer_mb: float) -> Sequence[Group]:
        """ACP-SGD's: `buffer_mb` x size of all factors / size of the model; greedy, never above."""
        sizes = {t.name: costs.factor_elements(t, rank, side) for t in self.tensors}
        limit = buffer_mb * MIB / costs.FLOAT_BYTES
        limit *= sum(sizes.values()) / costs.elements(self.tensors)
        groups: list[list[Tensor]] = []
        filled = 0.0
        for tensor in reversed(self.tensors):
            if not groups or filled + sizes[tensor.name] > limit:
                groups.append([])
                filled = 0.0
            groups[-1].append(tensor)
            filled += sizes[tensor.name]
        return groups


def dense(
    job: Job, bucket_mb: float | None = DDP_MB, overlap: Overlap = "overlapped", half: bool = False
) -> Iteration:
    """S-SGD and DDP; `half`: FP16 without what the casts cost."""
    size = costs.half_bytes if half else costs.dense_bytes
    return job.run(job.buckets(bucket_mb), lambda g: job.fabric.all_reduce_s(size(g)), overlap)


def per_element(
    job: Job,
    compress_ns: float,
    send: Callable[[Group], float],
    overlap: Overlap,
    bucket_mb: float | None = DDP_MB,
) -> Iteration:
    """A method whose compression is known by the element, with its collective."""
    return job.run(
        job.buckets(bucket_mb), send, overlap, lambda g: compress_ns * 1e-9 * costs.elements(g)
    )


def power_collectives_s(job: Job, group: Group, rank: int) -> float:
    """As torch's powerSGD_hook: vectors, all P, all Q of a bucket, one after the other."""
    sizes = (
        costs.vector_bytes(group),
        costs.factor_bytes(group, rank, 0),
        costs.factor_bytes(group, rank, 1),
    )
    return sum(job.fabric.all_reduce_s(size) for size in sizes if size)


def power_hook(
    job: Job, rank: int, device: Device, bucket_mb: float | None = DDP_MB, naive: bool = False
) -> Iteration:
    """Power-SGD*: torch's hook, bucket by bucket, which waits; `naive`: after backward."""
    return job.run(
        job.buckets(bucket_mb),
        lambda group: power_collectives_s(job, group, rank),
        "after_backward" if naive else "blocking",
        lambda group: costs.power_s(group, rank, device),
    )


def power_packed(job: Job, rank: int, device: Device) -> Iteration:
    """The original: after backward all P, with the vectors, in one all-reduce, all Q in another."""

    def send(group: Group) -> float:
        lefts = costs.factor_bytes(group, rank, 0) + costs.vector_bytes(group)
        rights = costs.factor_bytes(group, rank, 1)
        return job.fabric.all_reduce_s(lefts) + job.fabric.all_reduce_s(rights)

    return job.run(
        job.buckets(ALL), send, "after_backward", lambda g: costs.power_s(g, rank, device)
    )


def acp(
    job: Job,
    rank: int,
    device: Device,
    buffer_mb: float = BUFFER_MB,
    overlap: Overlap = "overlapped",
) -> Iteration:
    """Mean of a step that sends P and one that sends Q."""

    def step(side: int) -> Iteration:
        def send(group: Group) -> float:
            size = costs.factor_bytes(group, rank, side) + costs.vector_bytes(group)
            return job.fabric.all_reduce_s(size)

        return job.run(
            job.scaled_buffers(rank, side, buffer_mb),
            send,
            overlap,
            lambda group: costs.acp_s(group, rank, side, device),
            costs.decode_s(job.tensors, rank, device),
        )

    return _mean([step(0), step(1)])


def covap(job: Job, interval: int, bucket_mb: float | None = DDP_MB) -> Iteration:
    """Mean of the I steps in which every unit goes once."""
    return _mean(covap_steps(job, interval, bucket_mb=bucket_mb))


def covap_steps(
    job: Job, interval: int, sharded: bool = True, bucket_mb: float | None = DDP_MB
) -> list[Iteration]:
    """Each of the I steps; units are buckets, in even slices where they are `sharded`."""
    buckets = job.buckets(bucket_mb)
    sizes = [costs.elements(bucket) for bucket in buckets]
    counts = shards(sizes, interval) if sharded else [1] * len(buckets)
    units, total = {}, 0
    for bucket, parts in zip(buckets, counts, strict=True):
        units[bucket[0].name] = range(total, total + parts)
        total += parts

    def step(number: int) -> Iteration:
        def send(bucket: Group) -> float:
            own = units[bucket[0].name]
            turns = sum((unit + number) % interval == 0 for unit in own)
            return turns * job.fabric.all_reduce_s(costs.dense_bytes(bucket) / len(own))

        return job.run(buckets, send)

    return [step(number) for number in range(interval)]


def _mean(found: Sequence[Iteration]) -> Iteration:
    return Iteration(*(fmean(column) for column in zip(*found, strict=True)))
