"""The parts of a model that are exchanged in turn: whole layers, with their statistics."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn


class Fragment(NamedTuple):
    """Part of a model, by the names of its tensors, in order of registration."""

    parameters: Mapping[str, Tensor]
    statistics: Mapping[str, Tensor]  # buffers of floating point, such as those of batch-norm


def fragments_of(model: nn.Module, count: int, pattern: str) -> list[Fragment]:
    """Distribute the layers of `model` over `count` fragments.

    A layer is a module with trained parameters of its own. With `strided` every `count`-th layer
    belongs to one fragment. With `sequential` neighbours do, and fragments have similar numbers of
    elements. Raises ValueError if there are fewer layers than fragments.
    """
    layers = layers_of(model)
    if len(layers) < count:
        raise ValueError(
            f"fragments must be at most {len(layers)}, the layers of the model, got {count}"
        )
    places = [number % count for number in range(len(layers))]
    if pattern == "sequential":
        sizes = [sum(each.numel() for each in layer.parameters.values()) for layer in layers]
        places = _in_sequence(sizes, count)
    return [_joined([each for each, at in zip(layers, places, strict=True) if at == number])
            for number in range(count)]  # fmt: skip


def layers_of(model: nn.Module) -> list[Fragment]:
    """Return the layers of `model`. Statistics without own parameters join the layer before."""
    found: list[Fragment] = []
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        start = f"{prefix}." if prefix else ""
        parameters = {
            start + name: each
            for name, each in module.named_parameters(recurse=False)
            if each.requires_grad and id(each) not in seen
        }
        seen |= {id(each) for each in parameters.values()}
        statistics = {
            start + name: each
            for name, each in module.named_buffers(recurse=False)
            if each.is_floating_point()
        }
        if parameters or not found:
            found.append(Fragment(parameters, statistics))
        elif statistics:
            found[-1] = _joined([found[-1], Fragment({}, statistics)])
    if len(found) > 1 and not found[0].parameters:
        found[:2] = [_joined(found[:2])]
    return found


def _joined(parts: Sequence[Fragment]) -> Fragment:
    parameters = {name: each for part in parts for name, each in part.parameters.items()}
    return Fragment(parameters, {n: each for part in parts for n, each in part.statistics.items()})


def _in_sequence(sizes: Sequence[int], count: int) -> list[int]:
    """Return each layer's fragment, cut at equal shares of elements; no fragment is empty."""
    places: list[int] = []
    done, whole = 0, sum(sizes)
    for number, size in enumerate(sizes):
        middle = int((done + size / 2) / whole * count) if whole else 0
        before = places[-1] if places else -1
        least = max(max(before, 0), count - (len(sizes) - number))
        places.append(max(least, min(middle, before + 1, count - 1)))
        done += size
    return places
