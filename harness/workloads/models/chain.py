"""A chain of layers in which some also read the inputs of the whole model, wherever it is cut."""

from torch import Tensor, nn


class SkipLayer(nn.Module):
    """A layer that takes the previous layer's output and the inputs of the whole model.

    These inputs do not travel through the previous layers. A pipeline's stage reads them itself.
    """


class Chain(nn.Sequential):
    """An nn.Sequential that may contain `SkipLayer`s.

    `preferred_cuts` are those of a paper, by number of stages: the numbers of the layers with which
    each stage but the first begins.
    """

    preferred_cuts: dict[int, list[int]] = {}

    def forward(self, x: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Run the chain on `x`, its first layer's input; `inputs` are the model's, or `x`."""
        inputs = x if inputs is None else inputs
        for layer in self:
            x = layer(x, inputs) if isinstance(layer, SkipLayer) else layer(x)
        return x
