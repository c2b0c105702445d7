"""What compression costs a device, in place of what it takes here: `network/device`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any, NamedTuple

from profiles.limits import check_between

MOST = 1e9
OTHER = "other"  # of every compressor that a device's costs do not name
SOURCE = "source"  # where a cost is from: a text
Shape = Sequence[int]


class Cost(NamedTuple):
    """Cost model of one bucket's compression, on the device, in microseconds and nanoseconds.

    A matrix is a parameter of two dimensions or more, [n, m] with n its first; its factors have
    r = min(rank, n, m) columns.
    """

    bucket_us: float = 0.0  # once
    matrix_us: float = 0.0  # for each matrix: what is launched for it
    column_us: float = 0.0  # for each column of a factor: its part of a QR decomposition
    element_ns: float = 0.0  # for each element of the gradient: passes over memory
    rank_ns: float = 0.0  # for each element of a matrix, times r: its products with factors
    # Of a parameter of n elements whose threshold is sought anew, for each element:
    sort_ns: float = 0.0  # times log2(n), where all are sorted
    partition_ns: float = 0.0  # where they are partitioned


@dataclass(frozen=True)
class Given:
    """Cost of a compressor in emulated seconds."""

    cost: Cost
    scale: float = 1.0  # emulated seconds, of one of the device
    represented: int | None = None  # elements of the model stood in for; None: its own

    def seconds(
        self, elements: int, shapes: Sequence[Shape] = (), rank: int = 0, of: int | None = None
    ) -> float:
        """Seconds for a bucket of so many elements, with parameters of these `shapes`.

        Where the model is a stand-in, whose own elements are `of`, an element costs what those cost
        that it represents; buckets and matrices are as many as there are.
        """
        cost, stands_for = self.cost, self.represented / of if self.represented and of else 1.0
        matrices = [(s[0], prod(s[1:])) for s in shapes if len(s) > 1]
        columns = [min(rank, *matrix) for matrix in matrices]
        products = sum(r * prod(matrix) for r, matrix in zip(columns, matrices, strict=True))
        us = cost.bucket_us + cost.matrix_us * len(matrices) + cost.column_us * sum(columns)
        ns = cost.element_ns * elements + cost.rank_ns * products
        return self.scale * (1e-6 * us + 1e-9 * stands_for * ns)

    def search_s(self, searched: Mapping[str, Sequence[int]], of: int | None = None) -> float:
        """Seconds to seek thresholds among so many elements each, by `sort` or `partition`."""
        stands_for = self.represented / of if self.represented and of else 1.0
        sizes = {how: [stands_for * size for size in each] for how, each in searched.items()}
        ns = self.cost.sort_ns * sum(n * log2(n) for n in sizes.get("sort", ()))
        ns += self.cost.partition_ns * sum(sizes.get("partition", ()))
        return self.scale * 1e-9 * ns

    def charge(
        self, compressor: Any, shapes: Mapping[str, Shape], density: float, step: int, of: int
    ) -> float:
        """Seconds of a bucket with parameters of these `shapes`, of a gradient of `of` elements."""
        rank, each = getattr(compressor, "rank", 0), list(shapes.values())
        if rank is None:
            rank = nearest_rank(each, density)
        sizes = {name: prod(shape) for name, shape in shapes.items()}
        sought_s = self.search_s(compressor.searches(sizes, density, step), of)
        return self.seconds(sum(sizes.values()), each, rank, of) + sought_s


def nearest_rank(shapes: Sequence[Shape], density: float) -> int:
    """The rank at which both factors of matrices of these shapes have that share of their elements.

    What a compressor of density's rank takes, but for its rounding and its vectors.
    """
    sizes = [(shape[0], prod(shape[1:])) for shape in shapes if len(shape) > 1]
    sides = sum(n + m for n, m in sizes)
    return max(1, round(density * sum(n * m for n, m in sizes) / sides)) if sides else 0


def given(compressor: str, device: Mapping[str, Any], scale: float) -> Given | None:
    """Cost on `device` of the compressor in the file of that name; None: measured here."""
    costs = device.get("costs") or {}
    told = costs.get(compressor, costs.get(OTHER))
    if told is None:
        return None
    return Given(Cost(**{key: value for key, value in told.items() if key != SOURCE}), scale)


def file_of(compressor: object) -> str:
    """Name of the file of compressors/ that a compressor's class is in."""
    return type(compressor).__module__.rpartition(".")[2]


def check(device: Any) -> None:
    """ValueError for what is no device's name and costs, by its key."""
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
