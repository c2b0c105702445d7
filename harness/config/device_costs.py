"""Compression costs of an emulated device (`network/device`), used instead of measured times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any, NamedTuple

from profiles.limits import check_between

MOST = 1e9
OTHER = "other"  # key of the costs of all unlisted compressors
SOURCE = "source"  # key of a text on the origin of the costs
Shape = Sequence[int]


class Cost(NamedTuple):
    """Cost model of compressing one bucket on a device; fields are in microseconds or nanoseconds.

    A matrix is a parameter with two or more dimensions, viewed as [n, m] where n is its first one.
    Its factors have r = min(rank, n, m) columns.
    """

    bucket_us: float = 0.0  # once per bucket
    matrix_us: float = 0.0  # per matrix: kernel launches
    column_us: float = 0.0  # per column of a factor: QR decomposition
    element_ns: float = 0.0  # per element of the gradient: passes over memory
    rank_ns: float = 0.0  # per element of a matrix and r: products with its factors
    # Per element of a parameter of n elements whose threshold is searched:
    sort_ns: float = 0.0  # times log2(n), if the search sorts
    partition_ns: float = 0.0  # if the search partitions


@dataclass(frozen=True)
class Given:
    """Cost model of one compressor, with the scale that converts it to emulated seconds."""

    cost: Cost
    scale: float = 1.0  # emulated seconds per second of the device
    represented: int | None = None  # elements of the original model; None without a stand-in

    def seconds(
        self, elements: int, shapes: Sequence[Shape] = (), rank: int = 0, of: int | None = None
    ) -> float:
        """Return the emulated seconds to compress a bucket of `elements`, without threshold search.

        `shapes` are its parameters, `rank` that of their factors. If the model is a stand-in with
        `of` elements, the cost per element is scaled by `represented / of`.
        """
        cost, stands_for = self.cost, self.represented / of if self.represented and of else 1.0
        matrices = [(s[0], prod(s[1:])) for s in shapes if len(s) > 1]
        columns = [min(rank, *matrix) for matrix in matrices]
        products = sum(r * prod(matrix) for r, matrix in zip(columns, matrices, strict=True))
        us = cost.bucket_us + cost.matrix_us * len(matrices) + cost.column_us * sum(columns)
        ns = cost.element_ns * elements + cost.rank_ns * products
        return self.scale * (1e-6 * us + 1e-9 * stands_for * ns)

    def search_s(self, searched: Mapping[str, Sequence[int]], of: int | None = None) -> float:
        """Return emulated seconds to find thresholds in parameters of these sizes, by method."""
        stands_for = self.represented / of if self.represented and of else 1.0
        sizes = {how: [stands_for * size for size in each] for how, each in searched.items()}
        ns = self.cost.sort_ns * sum(n * log2(n) for n in sizes.get("sort", ()))
        ns += self.cost.partition_ns * sum(sizes.get("partition", ()))
        return self.scale * 1e-9 * ns

    def charge(
        self, compressor: Any, shapes: Mapping[str, Shape], density: float, step: int, of: int
    ) -> float:
        """Return the emulated seconds to compress a bucket; `of` is the size of the gradient."""
        rank, each = getattr(compressor, "rank", 0), list(shapes.values())
        if rank is None:
            rank = nearest_rank(each, density)
        sizes = {name: prod(shape) for name, shape in shapes.items()}
        sought_s = self.search_s(compressor.searches(sizes, density, step), of)
        return self.seconds(sum(sizes.values()), each, rank, of) + sought_s


def nearest_rank(shapes: Sequence[Shape], density: float) -> int:
    """Return the rank at which the factors have about `density` of the matrices' elements, >= 1.

    Compressors that derive their rank from a density also round, and count vectors.
    """
    sizes = [(shape[0], prod(shape[1:])) for shape in shapes if len(shape) > 1]
    sides = sum(n + m for n, m in sizes)
    return max(1, round(density * sum(n * m for n, m in sizes) / sides)) if sides else 0


def given(compressor: str, device: Mapping[str, Any], scale: float) -> Given | None:
    """Return the cost of `compressor` (a file of compressors/) on `device`; None: measure it."""
    costs = device.get("costs") or {}
    told = costs.get(compressor, costs.get(OTHER))
    if told is None:
        return None
    return Given(Cost(**{key: value for key, value in told.items() if key != SOURCE}), scale)


def file_of(compressor: object) -> str:
    """Return the name of the module in compressors/ that defines the compressor's class."""
    return type(compressor).__module__.rpartition(".")[2]


def check(device: Any) -> None:
    """Raise ValueError, naming the key, unless `device` is a section of a name and valid costs."""
    if not isinstance(device, Mapping) or not {"costs"} <= set(device) <= {"name", "costs"}:
        raise ValueError(
            f"device must be a section with name and costs, got {device!r}; "
            "network/device=v100 takes one of the choices there"
        )
    costs = device["costs"] or {}
    if not isinstance(costs, Mapping):
        raise ValueError(f"device.costs must be a section with costs by compressor, got {costs!r}")
    for file, told in costs.items():
        if not isinstance(told, Mapping) or not set(told) <= {*Cost._fields, SOURCE}:
            raise ValueError(
                f"device.costs.{file} must be a section with some of {', '.join(Cost._fields)}, "
                f"got {told!r}"
            )
        for key, value in told.items():
            if key != SOURCE:
                check_between(0, MOST, **{f"device.costs.{file}.{key}": value})
