"""Gradients in the buckets that DDP would make, handed over when backward has ended."""

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
    """A bucket whose mean is there when the last of its exchange has been handed over."""

    def wait(self) -> None:
        return None


class Buckets:
    """Buckets of `parameters`, by name in registration order; on meta they are only shapes.

    Without `values` the buckets are on that device too, and cost nothing. `laid` is their memory:
    bucket by bucket; in one piece, and cut anew for every exchange, where what is sent fills them.
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
        # By how many tensors each bucket has.
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
        """The buckets of the exchange of `step`."""
        if not isinstance(self._bucket_mb, Fusion):
            return self.laid
        counts = tuple(map(len, names_at(self._shapes, self._bucket_mb, step)))
        if counts not in self._cut:
            self._cut[counts] = list(_cut(self.laid[0], counts))
        return self._cut[counts]

    def take(self) -> None:
        """Move the gradients that backward left into the buckets; ValueError for a missing one."""
        require_all(name for name, each in self._parameters.items() if each.grad is None)
        gradients: Any = {name: each.grad for name, each in self._parameters.items()}
        self.put(gradients)
        for parameter in self._parameters.values():
            parameter.grad = None

    def put(self, gradients: Mapping[str, Tensor]) -> None:
        """Gradients, by name of their parameters, into the buckets."""
        for laid in self.laid:
            torch.cat([gradients[name].reshape(-1) for name in laid.names], out=laid.buffer)

    def exchange(self, exchange: Any, patterns: Sequence[Tensor] = ()) -> None:
        """Replace every gradient by its mean; first, where there are any, by that of `patterns`.

        These are as `laid` is.
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
        """The means to the parameters, as their gradients."""
        for laid in self.laid:
            for name, mean in zip(laid.names, laid.gradients, strict=True):
                self._parameters[name].grad = mean


def _cut(whole: BucketBuffers, counts: Iterable[int]) -> Iterator[BucketBuffers]:
    """Buckets of so many tensors each, in the memory of one of all."""
    name, element = 0, 0
    for count in counts:
        some = slice(name, name + count)
        gradients = whole.gradients[some]
        size = sum(gradient.numel() for gradient in gradients)
        buffer = whole.buffer[element : element + size]
        yield BucketBuffers(buffer, whole.names[some], gradients, whole.parameters[some])
        name, element = name + count, element + size


def require_all(missing: Iterable[str]) -> None:
    """ValueError that names parameters without a gradient, if there are any."""
    if names := list(missing):
        raise ValueError(
            f"model: no gradient reached {', '.join(names[:MOST_NAMED])}"
            f"{' and others' if len(names) > MOST_NAMED else ''}; every parameter must take "
            "part in every step: use it, or set requires_grad = False"
        )


def ddp_sizes(bucket_mb: BucketMb) -> dict[str, Any]:
    """As DDP is told them; it hands over every tensor by itself where what is sent fills them."""
    if isinstance(bucket_mb, Fusion):
        bucket_mb = 0.0
    key = "bucket_cap_mb_list" if isinstance(bucket_mb, tuple) else "bucket_cap_mb"
    return {key: list(bucket_mb) if isinstance(bucket_mb, tuple) else bucket_mb}
