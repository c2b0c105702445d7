"""A chain of layers of which some look at the inputs of the whole model, wherever it is cut."""

from torch import Tensor, nn


class SkipLayer(nn.Module):
    """A layer that takes what came out of the layer before it, and the inputs of the whole model.

    What it needs of these does not travel through the layers before it: in a pipeline its stage
    reads them itself.
    """


class Chain(nn.Sequential):
    """An nn.Sequential with `SkipLayer` among its layers.

    `preferred_cuts` are those of a paper, by number of stages: numbers of the layers that each
    stage but the first begins with.
    """

    preferred_cuts: dict[int, list[int]] = {}

    def forward(self, x: Tensor, inputs: Tensor | None = None) -> Tensor:
        """`x` is what goes into the first layer; `inputs` the whole model's, if it is not `x`."""
        inputs = x if inputs is None else inputs
        for layer in self:
            x = layer(x, inputs) if isinstance(layer, SkipLayer) else layer(x)
        return x
