"""The cuts of a model in one process: operators between its layers, and nothing is sent."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from compressors.activations.operator import Cut
from harness.models.base import Shape
from harness.pipeline.chain import chain
from harness.pipeline.stages import cuts_of
from harness.settings import Settings


def cut_in_place(settings: Settings, model: nn.Module, shape: Shape) -> list[Cut]:
    """Put an operator at every cut of `model`, whose parameters keep their names; returns them."""
    parallel = settings.build("parallel")
    if parallel.stages == 1:
        return []
    layers, found = [layer for _, layer in chain(model)], []
    for first in cuts_of(model, shape, parallel.stages, parallel.cuts):
        cut = Cut(settings.build("activations"))
        layers[first - 1].register_forward_hook(_through(cut))
        found.append(cut)
    return found


def _through(cut: Cut) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    return lambda layer, inputs, output: cut(output.float(), layer.training)
