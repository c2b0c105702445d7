"""L-GreCo: budgets by layer for top-k, under any controller (Alimohammadi et al., 2023).

Each layer (a parameter) sends its k largest entries. Every `period` steps, k is chosen anew:
1. Some multiples of the controller's density are tried, from `lowest` to `highest`.
2. The error of each is measured: the squared norm of the entries that would not be sent.
3. Of all choices of one multiple per layer, the one that sends least is taken. Its errors may add
  up to at most `alpha` times those of the uniform choice. This is a knapsack problem, solved
  exactly for errors rounded up to `bins` steps.

The multiples hold until the next choice, whatever density the controller sets. If they would send
more than the uniform choice, the uniform one is used. Use it with `error_feedback: true`. We
differ, or the paper leaves open:
- errors are squared norms, so that they add up to that of the whole gradient; rounding may prefer
  the larger of two choices that are nearly equal;
- every worker chooses by its own gradient, because entries carry their positions;
- a choice covers the layers of all buckets, and is made before the first bucket of the exchange
  after the measurement. Until then, and for unmeasured layers, the choice is uniform.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced, Workers
from compressors.fused import add_and_take_largest, scatter_mean
from compressors.sparse import index_dtype
from compressors.topk_select import largest
from compressors.workspace import workspace


class Layer(NamedTuple):
    """Sizes and errors of one layer at each multiple of a density, both float64 [choices]."""

    sizes: Tensor  # entries sent
    errors: Tensor  # squared norm of the rest


@dataclass
class LGreCo(Compressor):
    """Top-k compressor with a budget per layer. It keeps measurements by parameter name."""

    period: int = 100  # steps between two choices, >= 1
    alpha: float = 1.0  # error allowed, as a multiple of the uniform choice's, >= 1
    lowest: float = 0.5  # multiple of the density, in (0, 1]
    highest: float = 2.0  # >= 1
    choices: int = 9  # multiples in addition to 1, spaced by equal factors, >= 2
    bins: int = 10_000  # steps that errors are counted in, >= 100
    index_dtype: str = "int32"  # of positions on the wire; int64 makes an entry 12 bytes, not 8
    multiples: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    layer_elements: dict[str, int] = field(
        default_factory=dict, init=False, repr=False
    )  # of these layers
    measured: dict[str, Layer] = field(default_factory=dict, init=False, repr=False)
    uniform: bool = field(default=True, init=False)  # the choice of the exchange in progress
    sent_entries: int = field(default=0, init=False)  # of the last bucket

    def __post_init__(self) -> None:
        self._wire_dtype = index_dtype(self.index_dtype)
        if self.period < 1:
            raise ValueError(f"period must be >= 1, got {self.period}")
        # The knapsack has a cell for each layer and bin, and for each of these each choice.
        for key, least, most in (("choices", 2, 1_000), ("bins", 100, 1_000_000)):
            if not least <= (value := getattr(self, key)) <= most:
                raise ValueError(f"{key} must be in [{least}, {most}], got {value}")
        if not self.alpha >= 1:
            raise ValueError(f"alpha must be >= 1, got {self.alpha}")
        if not 0 < self.lowest <= 1:
            raise ValueError(f"lowest must be in (0, 1], got {self.lowest}")
        if not 1 <= self.highest < float("inf"):
            raise ValueError(f"highest must be >= 1, got {self.highest}")

    def reduce(self, bucket: Bucket, density: float, workers: Workers) -> Reduced:
        """Return the mean of every worker's largest entries of each layer, [n], by its own choice.

        With K entries a worker contributes 8K bytes (12K with int64) to an all-gather. `unsent` is
        `bucket.grad`, zeroed where it was sent.
        """
        if bucket.index == 0:
            self._choose(density)
        multiples = {} if self.uniform else self.multiples
        counts = [
            _count(n, density * multiples.get(name, 1.0))
            for name, n in zip(bucket.names, bucket.sizes, strict=True)
        ]
        index = workspace("sent positions", sum(counts), torch.int32, bucket.device)
        values = workspace("sent values", sum(counts), torch.float32, bucket.device)
        first = begin = 0
        for name, part, k in zip(bucket.names, bucket.split(), counts, strict=True):
            if k == 0:  # a parameter without elements
                continue
            if bucket.step % self.period == 0:
                self.measured[name] = self._layer(part.grad, density)
                self.layer_elements[name] = part.n
            found = add_and_take_largest(part, k)
            torch.add(found.index, first, out=index[begin : begin + k])
            values[begin : begin + k] = found.values
            first, begin = first + part.n, begin + k
        sent = index.to(self._wire_dtype)
        mean = scatter_mean(bucket.buffers, values, sent, workers)
        self.sent_entries = sum(counts)
        return Reduced(mean, unsent=bucket.grad)

    def _factors(self) -> list[float]:
        """Return the multiples of the density that a layer may get: 1, then `choices` others.

        The others are spaced by equal factors from `lowest` to `highest`.
        """
        step = (self.highest / self.lowest) ** (1 / (self.choices - 1))
        return [1.0, *(self.lowest * step**number for number in range(self.choices))]

    def _layer(self, grad: Tensor, density: float) -> Layer:
        """Return the entries sent, and the squared error, of a layer at each multiple of `density`.

        `grad` is the layer's gradient, [n]. The result has a float64 tensor, [multiples], of each.
        """
        counts = [_count(grad.numel(), density * factor) for factor in self._factors()]
        most = grad.index_select(0, largest(grad, max(counts))).double().square_()
        sent = torch.cat([most.new_zeros(1), most.sort(descending=True).values.cumsum(0)])
        rest = float(grad.double().square_().sum()) - sent[torch.tensor(counts)].cpu()
        return Layer(torch.tensor(counts, dtype=torch.float64), rest.clamp_(min=0))

    def _choose(self, density: float) -> None:
        """Choose multiples from new measurements, then whether `density` needs the uniform choice.

        At another density than the measured one, the least and largest counts of small layers may
        make a choice larger than the uniform one.
        """
        if self.measured:
            factors, layers = self._factors(), list(self.measured.values())
            best = least_sizes(layers, self.alpha, self.bins)
            self.multiples = {
                name: factors[number] for name, number in zip(self.measured, best, strict=True)
            }
            self.measured = {}
        sizes = [(self.layer_elements[name], multiple) for name, multiple in self.multiples.items()]
        chosen = sum(_count(n, density * multiple) for n, multiple in sizes)
        self.uniform = chosen > sum(_count(n, density) for n, _ in sizes)


def _count(n: int, density: float) -> int:
    """Return the entries sent of a layer of n: at least 1, if it has any."""
    return min(n, max(1, int(min(1.0, density) * n)))


def least_sizes(layers: list[Layer], alpha: float, bins: int) -> list[int]:
    """Return the choice of every layer for which the sum of sizes is least (dynamic programming).

    The sum of errors, each rounded up to a `bins`-th of what is allowed, stays within `alpha` times
    that of the choices 0, the uniform ones. These are returned if no smaller choice qualifies.
    """
    allowed = alpha * sum(float(layer.errors[0]) for layer in layers)
    if not 0 < allowed < float("inf"):
        return [0] * len(layers)
    least = torch.zeros(bins + 1, dtype=torch.float64)  # size by steps of error spent, at most
    taken = torch.zeros(len(layers), bins + 1, dtype=torch.int16)
    # Errors may be far above the limit, or infinite: any number of bins above all suffices.
    steps = [
        (layer.errors / allowed * bins).ceil().clamp(max=bins + 1).long().tolist()
        for layer in layers
    ]
    for number, (layer, spent) in enumerate(zip(layers, steps, strict=True)):
        after = torch.full_like(least, float("inf"))
        for choice, (size, cost) in enumerate(zip(layer.sizes.tolist(), spent, strict=True)):
            if cost > bins:
                continue
            total, known = least[: bins + 1 - cost] + size, after[cost:]
            taken[number, cost:][total < known] = choice
            torch.minimum(known, total, out=known)
        least = after
    if not least[bins] < sum(float(layer.sizes[0]) for layer in layers):
        return [0] * len(layers)
    left, found = bins, []
    for number in range(len(layers) - 1, -1, -1):
        found.append(int(taken[number, left]))
        left -= steps[number][found[-1]]
    return found[::-1]
