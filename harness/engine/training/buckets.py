"""Gradients in the buckets that DDP would make, exchanged after backward has ended."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.engine.exchange.bucket_lanes import ExchangeError
from harness.engine.exchange.reduction import BucketBuffers
from harness.workloads.buckets import BucketMb, names_at
from harness.workloads.fusion import Fusion

MOST_NAMED = 5  # parameters in one message


class BucketHandle:
    """Future of a bucket. Its mean is ready once the exchange's last bucket is submitted."""

    def wait(self) -> None:
        return None


class Buckets:
    """Gradient buckets of `parameters`, given by name in registration order.

    Parameters on meta have only shapes. Without `values` the buckets are on meta as well and take
    no memory. `laid` lists the buckets; with fusion it is one buffer, cut anew for every exchange.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], bucket_mb: BucketMb, values: bool = True
    ) -> None:
        self._parameters, self._values, self._bucket_mb = parameters, values, bucket_mb
        self._shapes = {name: parameter.shape for name, parameter in parameters.items()}
        of_all = [tuple(reversed(list(parameters)))]
        fused = isinstance(bucket_mb, Fusion)
        layout = of_all if fused else names_at(self._shapes, bucket_mb)
        self.laid = [self._lay(names) for names in layout]
        # Key: number of tensors in each bucket.
        self._cut: dict[tuple[int, ...], list[BucketBuffers]] = {}

    def _lay(self, names: tuple[str, ...]) -> BucketBuffers:
        members = [self._parameters[name].detach() for name in names]
        sizes, first = [member.numel() for member in members], members[0]
        known = "cpu" if first.is_meta else first.device
        buffer = torch.zeros(sum(sizes), device=known if self._values else "meta")
        pairs = zip(buffer.split(sizes), members, strict=True)
        views = [part.view(member.shape) for part, member in pairs]
        return BucketBuffers(buffer, names, views, () if first.is_meta else members)

    def at(self, step: int) -> list[BucketBuffers]:
        """Return the buckets of the exchange of `step`."""
        if not isinstance(self._bucket_mb, Fusion):
            return self.laid
        counts = tuple(map(len, names_at(self._shapes, self._bucket_mb, step)))
        if counts not in self._cut:
            self._cut[counts] = list(_cut(self.laid[0], counts))
        return self._cut[counts]

    def take(self) -> None:
        """Move the parameters' gradients into the buckets. Raise ValueError if one is missing."""
        require_all(name for name, each in self._parameters.items() if each.grad is None)
        gradients: Any = {name: each.grad for name, each in self._parameters.items()}
        self.put(gradients)
        for parameter in self._parameters.values():
            parameter.grad = None

    def put(self, gradients: Mapping[str, Tensor]) -> None:
        """Copy gradients, given by parameter name, into the buckets."""
        for laid in self.laid:
            torch.cat([gradients[name].reshape(-1) for name in laid.names], out=laid.buffer)

    def exchange(self, exchange: Any, patterns: Sequence[Tensor] = ()) -> None:
        """Replace the gradients in the buckets by their means. Block until all are done.

        `patterns` optionally gives the gradients, one 1-D tensor for each bucket in `laid`. Raise
        ExchangeError if the exchange failed.
        """
        futures, buckets = [], self.at(exchange.step)
        if len(patterns) == 1:
            patterns = patterns[0].split([laid.buffer.numel() for laid in buckets])
        for number, laid in enumerate(buckets):
            fill = patterns[number] if patterns else None
            last = laid is buckets[-1]
            futures.append(exchange.submit(laid, last=last, pattern=fill))
        for future in futures:
            try:
                future.wait()
            except RuntimeError as error:
                cause = exchange.error or error
                raise ExchangeError(str(cause)) from cause

    def give(self) -> None:
        """Set the parameters' gradients to the means, as views of the buckets."""
        for laid in self.laid:
            for name, mean in zip(laid.names, laid.gradients, strict=True):
                self._parameters[name].grad = mean


def _cut(whole: BucketBuffers, counts: Iterable[int]) -> Iterator[BucketBuffers]:
    """Yield buckets of `counts` tensors each, as views of the bucket `whole`."""
    name, element = 0, 0
    for count in counts:
        some = slice(name, name + count)
        gradients = whole.gradients[some]
        size = sum(gradient.numel() for gradient in gradients)
        buffer = whole.buffer[element : element + size]
        yield BucketBuffers(buffer, whole.names[some], gradients, whole.parameters[some])
        name, element = name + count, element + size


def require_all(missing: Iterable[str]) -> None:
    """Raise ValueError that names parameters without a gradient, if there are any."""
    if names := list(missing):
        raise ValueError(
            f"model: no gradient reached {', '.join(names[:MOST_NAMED])}"
            f"{' and others' if len(names) > MOST_NAMED else ''}; every parameter must take "
            "part in every step: use it, or set requires_grad = False"
        )


def ddp_sizes(bucket_mb: BucketMb) -> dict[str, Any]:
    """Return the bucket size as DDP's keyword arguments. With fusion every tensor is a bucket."""
    if isinstance(bucket_mb, Fusion):
        bucket_mb = 0.0
    key = "bucket_cap_mb_list" if isinstance(bucket_mb, tuple) else "bucket_cap_mb"
    return {key: list(bucket_mb) if isinstance(bucket_mb, tuple) else bucket_mb}
