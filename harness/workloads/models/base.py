"""Interface of models: a network for the data's shape, and its published times."""

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from profiles.limits import check_between

Shape = tuple[int, ...]  # of one sample, as `harness.workloads.data.base` has it
State = tuple[Tensor, ...]  # of a recurrent model after a batch


MOST_PARAMETERS = 1e11  # more than a machine has memory for
MOST_LAYERS = 1202  # of the deepest network of He et al. (2016)


@dataclass(frozen=True)
class Times:
    """Emulated seconds of one step with `batch_size` samples on `device`, for one input shape."""

    forward_s: float
    backward_s: float
    batch_size: int
    device: str
    source: str  # where the figures come from

    def __post_init__(self) -> None:
        for name in ("forward_s", "backward_s", "batch_size"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ValueError(f"times.{name} must be a finite number > 0, got {value}")

    def at(self, batch_size: int) -> "Times":
        """Return the times of a step with `batch_size` samples, in proportion to the batch."""
        ratio = batch_size / self.batch_size
        return Times(
            self.forward_s * ratio, self.backward_s * ratio, batch_size, self.device, self.source
        )


class Architecture(Protocol):
    """Model, as made by a choice of the group `model`."""

    @property
    def name(self) -> str: ...

    @property
    def times(self) -> Times | None:
        """Published step times, or None if the run has to measure its computation."""
        ...

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return a network from [n, *shape] to scores [n, classes], with global random numbers.

        A text model maps words [n, words], and a state if it has one, to scores [n, words, classes]
        and a state (`harness.engine.training.task`). For two classes it may have one score, [n, 1],
        a logit. Raises ValueError for a shape it cannot take.
        """
        ...


def one_of(key: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise ValueError unless `value` is among `choices`."""
    if value not in choices:
        raise ValueError(f"{key} must be one of {', '.join(map(str, choices))}, got {value!r}")


def check_layers(**values: int) -> None:
    """Raise ValueError for a model with more layers than the deepest published networks."""
    check_between(1, MOST_LAYERS, **values)


def require_images(name: str, shape: Shape) -> None:
    """Raise ValueError unless `shape` is an image's."""
    if len(shape) != 3:
        raise ValueError(f"{name} takes images (channels, height, width), got samples of {shape}")


def backward_shares(model: nn.Module, shape: Shape) -> dict[str, float]:
    """Return the share of backward's time of each parameter's layer. The sum is 1.

    Backward costs a layer about twice its forward, so shares are those of `multiply_adds`. A
    stand-in gives its original's in `shares`.
    """
    if (told := getattr(model, "shares", None)) is not None:
        return dict(told)
    counts = multiply_adds(model, shape)
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}


def multiply_adds(model: nn.Module, shape: Shape) -> dict[str, int]:
    """Return the multiply-adds of one sample's forward pass, by parameter name.

    Weights of convolution, linear, LSTM and attention layers have their layer's count, without
    products of queries, keys and values. Any other parameter counts one per element of its layer's
    output. A copy runs on the meta device, so no data is touched.
    """
    shadow = copy.deepcopy(model).to("meta").eval()
    counts: dict[str, int] = defaultdict(int)

    for prefix, layer in shadow.named_modules():
        inner = isinstance(layer, nn.MultiheadAttention)  # which never calls the layer inside it
        own = {n: value.numel() for n, value in layer.named_parameters(prefix, recurse=inner)}

        def count(layer: nn.Module, inputs: object, output: Any, own: dict[str, int] = own) -> None:
            output = output[0] if isinstance(output, tuple) else output
            for name, elements in own.items():
                counts[name] += _cost(layer, name.rpartition(".")[2], elements, output)

        if own:
            layer.register_forward_hook(count)
    with torch.no_grad():
        shadow(torch.empty(1, *shape, device="meta"))
    return {name: counts[name] for name, _ in model.named_parameters()}


def _cost(layer: nn.Module, parameter: str, elements: int, output: Tensor) -> int:
    if parameter == "weight" and isinstance(layer, nn.Conv1d | nn.Conv2d):
        return elements * output.shape[2:].numel()
    if parameter.endswith("weight") and isinstance(layer, nn.MultiheadAttention):
        return elements * (output.numel() // layer.embed_dim)
    if parameter == "weight" and isinstance(layer, nn.Linear):
        return elements * (output.numel() // layer.out_features)
    if parameter.startswith("weight") and isinstance(layer, nn.LSTM):
        return elements * (output.numel() // layer.hidden_size)
    return output.numel()
