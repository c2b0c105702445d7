"""Bucket structure of a run's model, and of the original that it stands for."""

from collections.abc import Sequence
from typing import Any

from torch import Size

from harness.config.run import Run
from harness.workloads.buckets import BucketMb, names_at
from harness.workloads.form import Form
from harness.workloads.models.base import backward_shares


def forms(run: Run) -> list[Form]:
    """Return the form of the model, then of its original. Empty if no buckets are exchanged."""
    if run.parallel.ranks > 1 or run.parallel.servers:
        return []
    model, network = run.model, run.shapes()
    shapes = {name: tensor.shape for name, tensor in network.named_parameters()}
    waits = run.overlap == "after_backward" or run.parallel.is_local
    shares, mb = backward_shares(network, run.dataset.shape), run.bucket_mb
    found = [_form(model.name, shapes, shares, mb, waits)]
    if (original := getattr(model, "original", None)) is not None:
        told = original.model.name, original.shapes, original.shares, run.bucket_mb_of(1.0)
        found.append(_form(*told, waits))
    return found


def told(run: Run) -> list[dict[str, Any]]:
    """Return the forms as plain values for environment.json."""
    return [each._asdict() for each in forms(run)]


def _form(
    name: str, shapes: dict[str, Size], shares: dict[str, float], bucket_mb: BucketMb, waits: bool
) -> Form:
    sizes, buckets = {n: s.numel() for n, s in shapes.items()}, names_at(shapes, bucket_mb)
    whole = sum(sizes.values())
    parts = [sum(sizes[each] for each in names) / whole for names in buckets]
    took = [sum(shares[each] for each in names) for names in buckets]
    hidden = 0.0 if waits else _hidden(parts, took)
    return Form(name, len(buckets), max(sizes.values()) / whole, hidden)


def _hidden(parts: Sequence[float], backward: Sequence[float]) -> float:
    """Return the share of communication that ends before backward does, with buckets sent in order.

    `parts` are the buckets' shares of the bytes, `backward` their shares of backward. The model
    assumes that sending all bytes takes as long as backward.
    """
    ready, sent, over = 0.0, 0.0, 0.0
    for part, took in zip(parts, backward, strict=True):
        ready += took
        begin = max(ready, sent)
        sent = begin + part
        over += max(0.0, min(sent, 1.0) - begin)
    return over
