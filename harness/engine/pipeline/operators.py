"""The cuts of a model in one process: operators between its layers, without messages."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from compressors.activations.base import Activations
from compressors.activations.operator import Cut
from harness.config.parallel import Parallel
from harness.config.run import Run
from harness.engine.pipeline.chain import chain
from harness.engine.pipeline.stages import cuts_of
from harness.workloads.models.base import Shape
from harness.workloads.models.transformer import Rectifier, Translator


def cut_in_place(run: Run, model: nn.Module, shape: Shape) -> list[Cut]:
    """Put an operator at every cut of `model`, whose parameters keep their names. Return them.

    Replacing operators in the returned list replaces those at work.
    """
    if not run.parallel.has_cuts:
        return []
    cuts: list[Cut] = []
    for number, layer in enumerate(before_cuts(model, shape, run.parallel)):
        layer.register_forward_hook(_through(cuts, number, isinstance(layer, Rectifier)))
        cuts.append(Cut(run.activations()))
    return cuts


def before_cuts(model: nn.Module, shape: Shape, parallel: Parallel) -> list[nn.Module]:
    """Return the layers behind which a model is cut: ends of stages, or inside a transformer.

    Raise ValueError for impossible cuts. Cuts inside a transformer's layers form no pipeline
    stages, since the rest of the layer bypasses them.
    """
    if not isinstance(model, Translator):
        layers = [layer for _, layer in chain(model)]
        return [layers[cut - 1] for cut in cuts_of(model, shape, parallel.stages, parallel.cuts)]
    if parallel.cuts is not None:
        raise ValueError(f"cuts of a transformer must be null, got {list(parallel.cuts)}")
    return model.inner_cuts(parallel.stages)


def schemes(cuts: Sequence[Cut]) -> dict[str, Activations]:
    """Return the cuts' schemes by the names under which checkpoints keep them."""
    return {f"cut{number}": cut.scheme for number, cut in enumerate(cuts)}


def _through(
    cuts: list[Cut], number: int, words: bool
) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """Make a hook for cut `number`. A row is one sample, or with `words` one of its words."""

    def through(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        rows = output.flatten(0, -2) if words else output
        return cuts[number](rows.float(), layer.training).view_as(output)

    return through
