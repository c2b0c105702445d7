"""The cuts of a model, and its parts between them.

A model must be a chain of layers (`harness.engine.pipeline.chain`). A cut lies right before a layer
with a weight matrix or kernel. Normalisation, rectifier and pooling belong to the layer before
them, so that rectified activations cross, as in the paper's experiments. Parts keep their names.
"""

import copy
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import inf

import torch
from torch import nn

from harness.engine.pipeline.chain import Part, chain
from harness.workloads.models.base import Shape, multiply_adds


def cuts_of(model: nn.Module, shape: Shape, stages: int, given: Sequence[int] | None) -> list[int]:
    """Return the number of the first layer of every stage except the first.

    These are the `given` ones, or those that the model prefers, or balanced ones. Balanced cuts
    give the largest stage the fewest multiply-adds. Raise ValueError for cuts that do not ascend,
    that leave a stage without parameters, or that come before a layer working in place.
    """
    layers = chain(model)
    if given is None:
        given = getattr(model, "preferred_cuts", {}).get(stages)
    if given is None:
        return _balanced(model, shape, stages)
    cuts = list(given)
    if len(cuts) != stages - 1:
        raise ValueError(f"cuts must be {stages - 1} for {stages} stages, got {cuts}")
    if not all(a < b for a, b in pairwise([0, *cuts, len(layers)])):
        raise ValueError(f"cuts must grow, from 1 to {len(layers) - 1}, got {cuts}")
    for number, part in enumerate(parts(model, cuts)):
        if not any(True for _ in part.parameters()):
            raise ValueError(f"cuts leave nothing to train in stage {number}, got {cuts}")
    for cut in cuts:
        if getattr(layers[cut][1], "inplace", False):
            raise ValueError(
                f"cuts must come behind a layer that works in place, as layer {cut} does: "
                f"{layers[cut][0]}, got {cuts}"
            )
    return cuts


def parts(model: nn.Module, cuts: Sequence[int]) -> list[Part]:
    """Return the stages. Their parameters are those of `model`, with the same names."""
    layers = chain(model)
    return [Part(layers[first:stop]) for first, stop in pairwise([0, *cuts, len(layers)])]


def shapes(model: nn.Module, cuts: Sequence[int], shape: Shape) -> list[torch.Size]:
    """Return the shapes of one sample's activations at every cut."""
    found, inputs = [], torch.empty(1, *shape, device="meta")
    x = inputs
    with torch.no_grad():
        for part in parts(copy.deepcopy(model).to("meta").eval(), cuts)[:-1]:
            x = part(x, inputs)
            found.append(x.shape[1:])
    return found


def share(part: nn.Module, shares: dict[str, float]) -> float:
    """Return the share of the model's computation in `part`, from `shares` by parameter."""
    return sum(shares[name] for name, _ in part.named_parameters())


def _balanced(model: nn.Module, shape: Shape, stages: int) -> list[int]:
    layers, counts = chain(model), multiply_adds(model, shape)
    work = [sum(counts[f"{name}.{own}"] for own, _ in layer.named_parameters())
            for name, layer in layers]  # fmt: skip
    weighty = [number for number, (_, layer) in enumerate(layers)
               if any(parameter.dim() > 1 for parameter in layer.parameters())]  # fmt: skip
    allowed = weighty[1:]
    if len(allowed) < stages - 1:
        raise ValueError(
            f"stages must be at most {len(allowed) + 1}, the layers with weights, got {stages}"
        )

    @cache
    def best(first: int, left: int) -> tuple[float, tuple[int, ...]]:
        """Most work of a stage from layer `first` on, at least, and the cuts that reach it."""
        if left == 1:
            return sum(work[first:]), ()
        found: tuple[float, tuple[int, ...]] = (inf, ())
        for cut in allowed:
            if cut > first:
                rest, cuts = best(cut, left - 1)
                found = min(found, (max(sum(work[first:cut]), rest), (cut, *cuts)))
        return found

    return list(best(0, stages)[1])
