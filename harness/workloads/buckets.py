"""Assignment of a model's gradients to buckets, by the names of its parameters."""

from collections.abc import Mapping

from torch import Size

from harness.workloads.fusion import MIB, Fusion

FIRST_BUCKET_MB, BUCKET_MB = 1.0, 25.0  # DDP's own; the first is small: sending starts early
Unfused = float | tuple[float, float] | None  # the first and all others; None: DDP's own
BucketMb = Unfused | Fusion  # Fusion: filled by the bytes sent


def scaled(bucket_mb: float | None, scale: float) -> Unfused:
    """Return bucket sizes for a model with `scale` times its original's elements."""
    if bucket_mb is None and scale != 1:
        return FIRST_BUCKET_MB * scale, BUCKET_MB * scale
    return None if bucket_mb is None else bucket_mb * scale


def names_at(
    shapes: Mapping[str, Size], bucket_mb: BucketMb, step: int = 0
) -> list[tuple[str, ...]]:
    """Return the buckets of an exchange by parameter name, last parameter first."""
    if isinstance(bucket_mb, Fusion):
        return bucket_mb.names(shapes, step)
    return bucket_names({name: shape.numel() for name, shape in shapes.items()}, bucket_mb)


def bucket_names(parameters: Mapping[str, int], bucket_mb: Unfused) -> list[tuple[str, ...]]:
    """Return DDP's buckets by parameter name, last parameter first.

    Each is full at `bucket_mb` MiB. With 0 every parameter is a bucket. None means DDP's own sizes,
    1 MiB and then 25.
    """
    first_mb, mb = bucket_mb if isinstance(bucket_mb, tuple) else (bucket_mb, bucket_mb)
    if first_mb is None or mb is None:
        first_mb, mb = FIRST_BUCKET_MB, BUCKET_MB
    buckets: list[tuple[str, ...]] = []
    current: list[str] = []
    filled, limit = 0, int(first_mb * MIB)
    for name in reversed(list(parameters)):
        current.append(name)
        filled += 4 * parameters[name]
        if filled >= limit:
            buckets.append(tuple(current))
            current, filled, limit = [], 0, int(mb * MIB)
    if current:
        buckets.append(tuple(current))
    return buckets


def largest_bucket_bytes(shapes: Mapping[str, Size], bucket_mb: BucketMb) -> int:
    """Return the gradient bytes of the largest bucket; one parameter may exceed a full bucket."""
    buckets = names_at(shapes, bucket_mb)
    return max(4 * sum(shapes[name].numel() for name in names) for names in buckets)
