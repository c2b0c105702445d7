"""What compression is said to take, where it is not measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiles.limits import check_between

MOST = 1e9
Told = float | Mapping[str, float] | None  # of every compressor, or by the file it is in


@dataclass(frozen=True)
class Given:
    """Emulated seconds of a bucket: so much, and so much for each of its elements."""

    bucket_s: float
    element_s: float

    def seconds(self, elements: int) -> float:
        return self.bucket_s + elements * self.element_s


def given(compressor: str, compress_ns: Told, bucket_us: Told, scale: float) -> Given | None:
    """Times of the compressor in the file of that name, times `scale`; None: to be measured."""
    element_ns, per_bucket_us = _of(compressor, compress_ns), _of(compressor, bucket_us)
    if element_ns is None:
        return None
    return Given((per_bucket_us or 0.0) * 1e-6 * scale, element_ns * 1e-9 * scale)


def file_of(compressor: Mapping[str, Any]) -> str:
    """Which file of compressors/ a configuration's section `compressor` names."""
    return str(compressor["_target_"]).split(".")[-2]


def check(**told: Told) -> None:
    """ValueError for a time that cannot be one, by its key."""
    for key, value in told.items():
        by_file = value if isinstance(value, Mapping) else {"": value}
        for file, time in by_file.items():
            if time is not None:
                check_between(0, MOST, **{f"{key}.{file}".rstrip("."): time})


def _of(compressor: str, told: Told) -> float | None:
    return told.get(compressor) if isinstance(told, Mapping) else told
