"""A model as a chain of layers, and some of its layers as a model that keeps their names.

An nn.Sequential is a chain. Any other model must declare it: `order` lists its children as its
forward calls them, each with the previous one's output. Chains in it count as their layers.
"""

from collections.abc import Iterator

from torch import Tensor, nn

from harness.workloads.models.chain import SkipLayer

Layers = list[tuple[str, nn.Module]]  # with their names in the model, which may have dots


def chain(model: nn.Module) -> Layers:
    """Return the layers of `model`. Raise ValueError unless it is a chain."""
    if not _is_chain(model):
        raise ValueError(
            "only a chain of layers can be cut, an nn.Sequential or what tells the `order` of its "
            f"children, got a {type(model).__name__}"
        )
    return list(_layers("", model))


def _is_chain(model: nn.Module) -> bool:
    return isinstance(model, nn.Sequential) or hasattr(model, "order")


def _layers(prefix: str, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    children = dict(model.named_children())
    for name in getattr(model, "order", children):
        if _is_chain(child := children[name]):
            yield from _layers(f"{prefix}{name}.", child)
        else:
            yield f"{prefix}{name}", child


class Part(nn.Module):
    """Module that runs `layers` in order. A `SkipLayer` also gets the whole model's inputs."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self._layers = [layer for _, layer in layers]
        for name, layer in layers:
            self._put(name, layer)

    def _put(self, name: str, layer: nn.Module) -> None:
        """Register `layer` under the model's own name, so that parameters keep theirs."""
        *holders, last = name.split(".")
        holder: nn.Module = self
        for each in holders:
            if each not in dict(holder.named_children()):
                holder.add_module(each, nn.Module())
            holder = holder.get_submodule(each)
        holder.add_module(last, layer)

    @property
    def last_layer(self) -> nn.Module:
        return self._layers[-1]

    def forward(self, x: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Run the layers on `x`. `inputs` are the whole model's, by default `x`."""
        inputs = x if inputs is None else inputs
        for layer in self._layers:
            x = layer(x, inputs) if isinstance(layer, SkipLayer) else layer(x)
        return x
