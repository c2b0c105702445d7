"""Reduction in two levels of network: inside the nodes, and between them.

The workers of a node add up a bucket, each one shard of it. Every worker then exchanges its shard
with its peers on the other nodes, by the run's compressor, and the node gathers the means. So a
node's link carries the bytes of one worker per node, however many workers a node has. Published as
hierarchical all-reduce (Jia et al., 2018).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

from torch import Tensor

from harness.engine.exchange.backends import ProcessGroup
from harness.engine.exchange.collectives import Collectives, Levels, Workers
from harness.engine.exchange.reduction import BucketBuffers, Reduction


class TwoLevels(Collectives):
    """All workers, which agree level by level. Their bytes are those between nodes."""

    levels: Levels

    def agree(self, value: float, how: str) -> float:
        return self.levels.between.agree(self.levels.inside.agree(value, how), how)

    def all_reduce_min(self, values: list[float]) -> list[float]:
        return self.levels.between.all_reduce_min(self.levels.inside.all_reduce_min(values))


class OneLevel(Collectives):
    """The workers of one level, whose bytes count as those of `whole`."""

    whole: Collectives
    is_inside: bool

    def _count(self, sent: int, received: int) -> None:
        if self.is_inside:
            self.whole.inside_bytes += sent
        else:
            self.whole._count(sent, received)


@dataclass
class LevelWorkers(OneLevel, Workers):
    """One level over real process groups. It shares the list of intervals with `whole`."""

    whole: Workers = field(kw_only=True)
    is_inside: bool = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.intervals = self.whole.intervals


@dataclass
class TwoLevelWorkers(TwoLevels, Workers):
    """All workers over real process groups, with a group for each level."""

    inside: ProcessGroup = field(kw_only=True)
    between: ProcessGroup = field(kw_only=True)

    @property
    def groups(self) -> list[ProcessGroup]:
        return [self.group, self.inside, self.between]

    def __post_init__(self) -> None:
        super().__post_init__()
        level = partial(LevelWorkers, device=self.device, whole=self)
        inside = level(self.inside, is_inside=True)
        self.levels = Levels(inside, level(self.between, is_inside=False))
        self.shards = inside.world_size


class LaneLevel:
    """One level as a bucket in progress sees it: `call` runs each collective on the wire thread."""

    def __init__(self, level: Collectives, call: Callable[[Callable[[], Any]], Any]) -> None:
        self.rank, self.world_size = level.rank, level.world_size
        self._level, self._call = level, call

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        return self._call(partial(self._level.all_reduce, tensor, op))  # type: ignore[no-any-return]

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        return self._call(partial(self._level.all_gather, *tensors, equal=equal))  # type: ignore[no-any-return]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        return self._call(partial(self._level.all_to_all, *pieces, equal=equal))  # type: ignore[no-any-return]

    def reduce_scatter(self, tensor: Tensor) -> Tensor:
        return self._call(partial(self._level.reduce_scatter, tensor))  # type: ignore[no-any-return]

    def all_gather_parts(self, tensor: Tensor) -> Tensor:
        return self._call(partial(self._level.all_gather_parts, tensor))  # type: ignore[no-any-return]


@dataclass
class TwoLevelReduction(Reduction):
    """Reduction whose compressor, controller and residual work on this worker's shard of a bucket.

    `slices` maps each parameter to the range of its elements in the shard. Checkpoints keep it.
    """

    slices: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)

    def phases_s(self, seconds: float) -> list[float]:
        """Return the phases of compression. Nothing is compressed before the reduce-scatter."""
        return [0.0, *super().phases_s(seconds)]

    def charged(self, charge: Callable[..., float]) -> Callable[..., float]:
        """Return `charge`, the seconds of compressing a bucket, for the shards of buckets."""
        return lambda laid, *asked: charge(self.shard(laid), *asked)

    def reduce_bucket(
        self, step: int, index: int, laid: BucketBuffers, workers: Any = None
    ) -> None:
        """Replace the gradient in a bucket by the mean over all workers, level by level.

        A bucket with fewer elements than the node has workers is averaged without compression.
        """
        given: Any = workers or self.workers
        inside, between = given.levels
        buffer, sizes = laid.buffer, list(map(Tensor.numel, laid.gradients))
        if buffer.numel() < inside.world_size:
            if buffer.numel():
                between.all_reduce(inside.all_reduce(buffer))
            return
        if not isfinite(float(buffer.sum())):  # here the rank is known; a sum of ranks has none
            self._require_finite(step, laid.names, sizes, buffer)
        inside.reduce_scatter(buffer)
        super().reduce_bucket(step, index, self.shard(laid), between)
        inside.all_gather_parts(buffer)

    def shard(self, laid: BucketBuffers) -> BucketBuffers:
        """Return this worker's part of a bucket. A part of a matrix is a matrix of one column.

        Raise ValueError if a part differs from that of earlier exchanges, whose residual is kept.
        """
        inside = self.workers.levels.inside  # type: ignore[attr-defined]
        parts = laid.buffer.tensor_split(inside.world_size)
        mine, begin = parts[inside.rank], sum(map(Tensor.numel, parts[: inside.rank]))
        names, gradients, parameters, at = [], [], [], 0
        for number, (name, gradient) in enumerate(zip(laid.names, laid.gradients, strict=True)):
            first, n = begin - at, gradient.numel()  # of the shard, relative to the parameter
            start, stop = max(0, first), min(n, first + mine.numel())
            at += n
            if start >= stop:
                continue
            if self.slices.setdefault(name, (start, stop)) != (start, stop):
                raise ValueError(
                    f"rank {self.workers.rank} exchanges elements [{start}, {stop}) of {name}, and "
                    f"{list(self.slices[name])} before: resume with the same workers_per_node"
                )
            part = mine[start - first : stop - first]
            names.append(name)
            gradients.append(part.view(-1, 1) if gradient.dim() > 1 else part)
            if laid.parameters:
                parameters.append(laid.parameters[number].reshape(-1)[start:stop])
        return BucketBuffers(mine, tuple(names), gradients, parameters)
