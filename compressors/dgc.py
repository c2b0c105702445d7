"""Deep gradient compression: sparse momentum SGD that accumulates before it sends (Lin, 2018).

This is Algorithm 1 with momentum correction and factor masking, for each matrix: u <- m u + g, v <-
v + u. The largest entries of v are sent, and u and v are set to zero there. The thresholds are
those of `sampled_topk`. Three things follow the authors' code: vectors are sent whole, and their u
is that of the mean; there is a form with Nesterov's momentum; and density 1 masks nothing, so it is
momentum SGD.

The result is a step of momentum SGD, so the optimizer's own momentum must be 0. `error_feedback`
must be false, because v keeps what is not sent.

Below density 1, masking ends an entry's momentum whenever it is sent. An entry that is sent every T
steps moves (T - m (1 - m^T) / (1 - m)) / T times as far as with momentum. For m = 0.9 that is 0.23
at T = 4 and 0.97 at T = 300. So much time at high densities costs accuracy. We differ:
- local gradients are clipped to `clip_norm` / sqrt(P) for each bucket, not for the whole gradient;
- weight decay is the optimizer's and has no momentum, so it acts 1 / (1 - m) times less than
  theirs.

The paper's warm-up of the density is the controller `warmup`: a stage lasts few steps here, and an
epoch in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

import torch
from torch import Size, Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.buffers import Buffers
from compressors.fused import scatter_mean
from compressors.sampled_topk import SampledTopK
from compressors.sparse import erase_, index_dtype
from compressors.topk_select import Entries
from compressors.workspace import workspace


@dataclass
class DGC(Compressor):
    """Compressor with momentum u and, for matrices, accumulated steps v, kept by parameter name."""

    is_mean = False  # of this step's gradients: of sums of past ones
    replaces = ("error_feedback", "optimizer.momentum")
    momentum: float = 0.9  # m, in [0, 1)
    nesterov: bool = False
    masking: bool = True  # clear the momentum of sent entries
    clip_norm: float | None = None  # of the sum over workers of a bucket's gradients, > 0
    selection: SampledTopK = field(default_factory=SampledTopK)
    velocities: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # u
    sums: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # v

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be > 0 or null, got {self.clip_norm}")
        self._wire_dtype = index_dtype(self.selection.index_dtype)

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean over workers of the sent entries of v, [n], or of u for vectors.

        With K entries a worker contributes 8K bytes (12K with int64) to an all-gather, and 4 bytes
        for each element of a vector to an all-reduce. `unsent` is None: v keeps what is not sent.
        """
        self._clip_(bucket.grad, workers.world_size)
        gradients = bucket.gradients
        sent = self._sent(bucket, gradients, density, workers.rank)
        vectors = [part.dim() <= 1 for part in gradients]
        named = list(compress(zip(bucket.names, gradients, strict=True), vectors))
        steps = self._vector_steps(named, workers)
        mean = self._average(bucket, sent, workers)
        for result, step in zip(compress(mean.split(bucket.sizes), vectors), steps, strict=True):
            result.copy_(step)
        return Reduced(mean, unsent=None)

    def kept_like(
        self, field: str, kept: Tensor, shapes: Sequence[Size], workers: Workers
    ) -> Tensor | None:
        return torch.empty(shapes[0].numel(), device="meta")

    def _sent(self, bucket: Bucket, gradients: list[Tensor], density: float, rank: int) -> Entries:
        """Take out the entries that this worker sends, ordered by their position in the bucket."""
        matrices = [part.numel() for part in gradients if part.dim() > 1 and part.numel()]
        most = sum(self.selection.most(n, density) for n in matrices)
        index = workspace("sent positions", most, self._wire_dtype, bucket.device)
        values = workspace("sent values", most, torch.float32, bucket.device)
        count, first = 0, 0
        for name, part in zip(bucket.names, gradients, strict=True):
            if part.dim() > 1 and part.numel():
                key = (bucket.step, rank, *name.encode())
                found = self._accumulated_(name, part.flatten(), density, key)
                here = slice(count, count := count + found.values.numel())
                values[here] = found.values
                torch.add(found.index, first, out=index[here])
            first += part.numel()
        return Entries(index[:count], values[:count])

    def _average(self, bucket: Bucket, sent: Entries, workers: Workers) -> Tensor:
        """Return the mean, [n], of `sent` entries of matrices, maybe in the gradients' memory."""
        if all(len(shape) <= 1 for shape in bucket.shapes):
            return bucket.empty_mean().zero_()
        return scatter_mean(bucket.buffers, sent.values, sent.index, workers)

    def _accumulated_(
        self, name: str, grad: Tensor, density: float, key: tuple[int, ...]
    ) -> Entries:
        """Add `grad` to v of matrix `name`, [n], and take out the entries to send."""
        step = self._step(name, grad)
        if name not in self.sums:
            self.sums[name] = torch.zeros_like(grad)
        found = self.selection.take(Buffers(step, self.sums[name]), density, key)
        if self.masking and density < 1:
            erase_(self.velocities[name], found.index)
        return found

    def _step(self, name: str, grad: Tensor) -> Tensor:
        """Return the momentum step for `grad`, [n], which may be u itself."""
        if name not in self.velocities:
            self.velocities[name] = torch.zeros_like(grad)
        velocity = self.velocities[name]
        if self.nesterov:
            return velocity.add_(grad).mul_(self.momentum) + grad
        return velocity.mul_(self.momentum).add_(grad)

    def _vector_steps(self, named: list[tuple[str, Tensor]], workers: Workers) -> list[Tensor]:
        """Return the momentum steps for the mean of every (name, gradient)."""
        if not named:
            return []
        sizes = [grad.numel() for _, grad in named]
        flat = workers.all_reduce(torch.cat([grad.flatten() for _, grad in named]))
        parts = zip(named, flat.split(sizes), strict=True)
        return [self._step(name, grad) for (name, _), grad in parts]

    def _clip_(self, grad: Tensor, size: int) -> None:
        if self.clip_norm is None:
            return
        limit = self.clip_norm / size**0.5
        norm = float(torch.linalg.vector_norm(grad, dtype=torch.float64))
        if norm > limit:
            grad.mul_(limit / norm)
