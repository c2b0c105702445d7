"""Trial of a model with a data set on the meta device: shapes, scores and gradients.

No data is read and nothing is computed. Errors of a first step appear before processes start.
"""

from typing import Any

import torch
from torch import Tensor

from compressors.checks import described
from harness.workloads.data.base import DataSet
from harness.workloads.models.base import Architecture, Shape

SAMPLES = 2
MOST_NAMED = 5  # parameters in one message
META = torch.device("meta")
PAIR = 2  # sentences of a sample, of which the second is foretold


def misfit(architecture: Architecture, data: DataSet) -> str:
    """Say in a few words why model and data do not fit together. Empty if they do."""
    try:
        with META:
            model = architecture.build(data.shape, data.classes)
        found = model(torch.zeros(SAMPLES, *data.shape, device=META))
        scores = found[0] if isinstance(found, tuple) else found  # beside its state
        labels = SAMPLES, *label_shape(data.shape)
    except NotImplementedError as error:
        if "forward" in str(error):  # nn.Module's own, which no class has replaced
            return str(error)
        return ""  # the meta device has no such operator: nothing is known
    except Exception as error:  # whatever a model of one's own raises
        return str(error).strip().split("\n")[0] or type(error).__name__
    if not (isinstance(scores, Tensor) and scores.is_floating_point()):
        return f"its scores must be a tensor of floats, got {described(scores)}"
    if said := _of_scores(tuple(scores.shape), labels, data.classes):
        return said
    reached = _reached(scores)
    idle = [n for n, p in model.named_parameters() if p.requires_grad and id(p) not in reached]
    if not idle:
        return ""
    more = " and others" if len(idle) > MOST_NAMED else ""
    names = ", ".join(idle[:MOST_NAMED])
    return f"no gradient reaches {names}{more}; every parameter must take part in every step"


def _reached(scores: Tensor) -> set[int]:
    """Return ids of the parameters that backward would reach, without running it."""
    found, left, seen = set[int](), [scores.grad_fn], set[Any]()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        left += [each for each, _ in node.next_functions]
    return found


def label_shape(shape: Shape) -> Shape:
    """Return the shape of one sample's labels: per word for a text, per second word for a pair."""
    is_pair = len(shape) == PAIR and shape[0] == PAIR
    return tuple(shape[-1:]) if len(shape) == 1 or is_pair else ()


def _of_scores(found: tuple[int, ...], labels: tuple[int, ...], classes: int) -> str:
    """Say why scores of this shape do not suit the loss. Empty if they do."""
    is_logit = classes == 2 and found[-1:] == (1,)
    if found[:-1] == labels and (is_logit or found[-1] >= classes):
        return ""
    return f"labels {labels} of {classes} classes need scores {(*labels, classes)}, got {found}"
