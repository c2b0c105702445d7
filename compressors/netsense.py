"""NetSenseML: half precision, pruning by the weights, top-k (Wang et al., 2025, Algorithm 2).

The paper's ratio is our density; n is the number of elements of a bucket.

1. If the ratio is below tr_q and the gradient's norm above tr_d, values travel as float16. The
  ratio is then doubled for this call only; the controller does not see it.
2. In every Conv and Linear weight, the smallest weights are found, a share of 0.5 (1 - ratio). The
  gradient is set to zero there. Weights do not change.
3. The K = max(1, floor(ratio n)) largest entries are gathered. At ratio 1, all are all-reduced.

Use `error_feedback: true`, which keeps what is not sent. The paper leaves open, and we chose:
- tr_q is 0.1, the density of the paper's top-k baseline. tr_d is 2^-14 sqrt(n), at which the root
  mean square is the smallest normal float16. Above a norm of 65504 values might overflow, so they
  travel as float32;
- pruned entries are dropped and not kept; rounding errors are kept;
- a Conv or Linear weight is a parameter named `weight` of two or more dimensions. So an embedding
  counts as one. A replay trains nothing and prunes nothing, but sends the same bytes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.pruning import prune_
from compressors.reductions import mean_square
from compressors.sparse import add_at_, index_dtype
from compressors.topk_select import take_largest_
from compressors.workspace import workspace

AUTO = "auto"
HALF = torch.finfo(torch.float16)


@dataclass
class NetSenseML(Compressor):
    uniform_density = True  # at 1 everybody takes part in an all-reduce
    by_shape = True
    is_mean = False  # pruned entries are in neither mean nor residual
    tr_q: float = 0.1  # density below which values may travel as float16, in [0, 1]
    tr_d: float | str = AUTO  # norm above which they do, >= 0; auto: 2^-14 sqrt(n)
    index_dtype: str = "int32"  # of positions on the wire, beside values of 2 or 4 bytes; int64

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        if not 0 <= self.tr_q <= 1:
            raise ValueError(f"tr_q must be in [0, 1], got {self.tr_q}")
        if not (self.tr_d == AUTO or (isinstance(self.tr_d, (int, float)) and self.tr_d >= 0)):
            raise ValueError(f"tr_d must be auto or >= 0, got {self.tr_d!r}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean, [n], of every worker's K largest entries of the pruned `bucket.grad`.

        K entries of 6 bytes (as float16) or 8 (10 or 12 with int64) go to an all-gather. At density
        1, 4n bytes go to an all-reduce. `unsent` is `bucket.grad` less what was sent or pruned.
        """
        if density == 1:
            return Reduced(workers.all_reduce(bucket.grad), unsent=None)
        grad = bucket.grad
        halved = density < self.tr_q and self._is_dense(grad)
        ratio = min(1.0, 2 * density) if halved else density
        prune_weights_(grad, bucket, 0.5 * (1 - ratio))
        index, values = take_largest_(grad, max(1, int(ratio * grad.numel())))
        sent = values
        if halved:
            sent = workspace("halved", values.numel(), torch.float16, grad.device).copy_(values)
            add_at_(grad, index, values.sub_(sent), 1.0)
        mean = average_(bucket.empty_mean(), sent, index.to(self._wire_dtype), workers)
        return Reduced(mean, unsent=grad)

    def _is_dense(self, grad: Tensor) -> bool:
        """Return True if float16 can hold `grad`, [n]: its norm neither vanishes nor overflows.

        In a replay, which has no values, `grad` stands for noise with root mean square 1.
        """
        if grad.is_meta:
            return True
        root = grad.numel() ** 0.5
        norm = root * mean_square(grad) ** 0.5
        least = HALF.smallest_normal * root if self.tr_d == AUTO else float(self.tr_d)
        return least < norm <= HALF.max


def prune_weights_(grad: Tensor, bucket: Bucket, share: float) -> None:
    """Zero the entries of `grad`, [n], at the smallest `share` of each Conv and Linear weight."""
    first = 0
    for name, weights in zip(bucket.names, bucket.parameters, strict=False):
        last = first + weights.numel()
        if weights.dim() >= 2 and name.split(".")[-1] == "weight":
            prune_(grad[first:last], weights.flatten(), share)
        first = last


def average_(mean: Tensor, values: Tensor, index: Tensor, workers: Workers) -> Tensor:
    """Set `mean`, float32 [n], to the mean of vectors with `values` [K] at `index` [K].

    Workers decide independently whether to send float16. Each passes both types, one of them empty.
    """
    types = (torch.float32, torch.float16)
    pieces = [values if values.dtype is one else values.new_empty(0, dtype=one) for one in types]
    mean.zero_()
    for where, full, half in workers.all_gather(index, *pieces):
        part = full
        if half.numel():
            part = workspace("single", half.numel(), full.dtype, full.device).copy_(half)
        add_at_(mean, where, part, 1 / workers.world_size)
    return mean
