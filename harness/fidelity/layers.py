"""Models as lists of tensors: the papers' networks, from torchvision and from published shapes.

ResNets and VGGs are torchvision's, for 224 x 224 pixels, on the meta device. BERT is
`BertForPreTraining` with the vocabulary padded to a multiple of eight (Devlin et al., 2019), or
bert-base-chinese without its classifier. GPT-2 has ten layers: its published 81,894,144 parameters
imply a vocabulary of 13,317 and 1,024 positions. LlamaDebug is torchtitan's `debugmodel` with
GPT-2's vocabulary: 30,846,720 parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import ClassVar, NamedTuple

import torch
from torch import nn

from harness.fidelity.measurement import Unpredictable
from harness.workloads.models.base import Shape, Times

IMAGE = (3, 224, 224)
IMAGE_MODELS = ("resnet", "vgg")
FLOAT_BYTES = 4
PADDED_VOCABULARY, CHINESE_VOCABULARY, GPT2_VOCABULARY = 30528, 21128, 13317


class Tensor(NamedTuple):
    """One parameter; `multiply_adds` counts those of its layer's forward pass on one sample."""

    name: str
    shape: tuple[int, ...]
    multiply_adds: int
    of: tuple[int, ...] = ()  # shape of the other tensor whose multiply-adds are counted here

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def moved(self) -> int:
        """Activation elements that its layer reads and writes in a forward pass on one sample.

        A vector stands for one pass over its layer's output, such as a norm, a sum or a ReLU.
        """
        shape = self.of or self.shape
        if len(shape) < 2:
            return 2 * self.multiply_adds
        return self.multiply_adds // prod(shape) * (shape[0] + shape[1])

    @property
    def matrix(self) -> tuple[int, int] | None:
        """[n, m] as low-rank compressors reshape it; None for a vector."""
        if len(self.shape) < 2:
            return None
        return self.shape[0], self.elements // self.shape[0]

    def factor(self, rank: int, side: int) -> int:
        """Return the elements of P (`side` 0) or Q (1) at `rank`; a vector is sent whole."""
        matrix = self.matrix
        return self.elements if matrix is None else min(rank, *matrix) * matrix[side]


@dataclass(frozen=True)
class Layers:
    """A model for replays: it has the parameters of a listed model and no forward pass.

    `of` names the listed model; if it is empty, `name` does. Each parameter keeps one in `part` of
    its rows; `narrower` divides both rows and columns. Buckets shrink in proportion.
    """

    has_no_forward: ClassVar[bool] = True
    name: str
    times: Times | None = None
    classes: int | None = None
    part: int = 1
    narrower: int = 1
    of: str = ""

    def scale(self, shape: Shape, classes: int) -> float:
        """Return the elements of this model over those of the listed model."""
        return 1 / (self.part * self.narrower**2)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        known = tensors(self.of or self.name, self.classes)
        shapes = (self._fewer(each.shape) for each in known)
        network = nn.ParameterList(torch.empty(each, device="meta") for each in shapes)
        total = sum(each.multiply_adds for each in known)
        shares = {str(place): each.multiply_adds / total for place, each in enumerate(known)}
        object.__setattr__(network, "shares", shares)
        return network

    def _fewer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rows, *rest = shape
        columns = [max(1, side // self.narrower) for side in rest[:1]]
        return max(1, rows // (self.part * self.narrower)), *columns, *rest[1:]


@cache
def tensors(model: str, classes: int | None = None) -> tuple[Tensor, ...]:
    """Return the parameters of `model` in order of registration; the last gradient is ready first.

    `classes` is the number of classes of an image network, 1000 by default. Raise Unpredictable for
    an unknown name.
    """
    key = _key(model)
    if key not in _TABLES:
        raise Unpredictable(f"model must be one of {', '.join(_TABLES)}, got {model!r}")
    return _TABLES[key](classes) if classes else _TABLES[key]()


def parameters(model: str) -> int:
    """Return the number of elements of `model`'s gradient."""
    return sum(tensor.elements for tensor in tensors(model))


def multiply_adds(model: str) -> int:
    """Return the multiply-adds of one sample's forward pass."""
    return sum(tensor.multiply_adds for tensor in tensors(model))


def least_s(model: str, flops: float, bytes_per_s: float) -> float:
    """Return the least seconds of one sample's forward pass by the device's peak rates.

    A layer takes the longer of its operations and its memory traffic (roofline; Williams, 2009).
    """
    return sum(
        max(2 * each.multiply_adds / flops, FLOAT_BYTES * each.moved / bytes_per_s)
        for each in tensors(model)
    )


def takes_images(model: str) -> bool:
    """Return True if a model's samples are images of one size; texts differ in length."""
    return _key(model).startswith(IMAGE_MODELS)


def _key(model: str) -> str:
    return model.lower().replace("-", "").replace("_", "")


def _torchvision(name: str, classes: int = 1000) -> tuple[Tensor, ...]:
    import torch
    from torchvision import models

    from harness.workloads.models import base

    with torch.device("meta"):
        network = getattr(models, name)(num_classes=classes)
    counts = base.multiply_adds(network, IMAGE)
    return tuple(
        Tensor(name, tuple(parameter.shape), counts[name])
        for name, parameter in network.named_parameters()
    )


def _linear(name: str, inputs: int, outputs: int, tokens: int, beside: int = 0) -> list[Tensor]:
    """Return weight and bias; `beside` are attention's multiply-adds, first in backward."""
    weight = tokens * inputs * outputs + beside
    return [
        Tensor(f"{name}.weight", (outputs, inputs), weight),
        Tensor(f"{name}.bias", (outputs,), tokens * outputs),
    ]


def _norm(name: str, width: int, tokens: int) -> list[Tensor]:
    return [Tensor(f"{name}.{part}", (width,), tokens * width) for part in ("weight", "bias")]


def _bert_layer(name: str, width: int, tokens: int) -> list[Tensor]:
    scores = tokens * tokens * width  # products of queries and keys; the values need as many again
    return [
        *_linear(f"{name}.attention.query", width, width, tokens, scores),
        *_linear(f"{name}.attention.key", width, width, tokens),
        *_linear(f"{name}.attention.value", width, width, tokens, scores),
        *_linear(f"{name}.attention.output", width, width, tokens),
        *_norm(f"{name}.attention.norm", width, tokens),
        *_linear(f"{name}.intermediate", width, 4 * width, tokens),
        *_linear(f"{name}.output", 4 * width, width, tokens),
        *_norm(f"{name}.norm", width, tokens),
    ]


def _bert(depth: int, width: int, vocabulary: int, tokens: int, heads: bool) -> tuple[Tensor, ...]:
    """Return the parameters of a BERT; `heads` adds those of pre-training.

    Their decoder is the word embedding itself. Its multiply-adds count for its bias, as backward
    begins there. The cost of a lookup is negligible.
    """
    table = [
        Tensor("embeddings.word", (vocabulary, width), tokens * width),
        Tensor("embeddings.position", (512, width), tokens * width),
        Tensor("embeddings.type", (2, width), tokens * width),
        *_norm("embeddings.norm", width, tokens),
    ]
    for layer in range(depth):
        table += _bert_layer(f"encoder.{layer}", width, tokens)
    table += _linear("pooler", width, width, 1)
    if heads:
        table += [
            Tensor("decoder.bias", (vocabulary,), tokens * width * vocabulary, table[0].shape)
        ]
        table += _linear("transform", width, width, tokens)
        table += _norm("transform.norm", width, tokens)
        table += _linear("next_sentence", width, 2, 1)
    return tuple(table)


def _gpt2(
    depth: int, width: int, vocabulary: int, positions: int, tokens: int
) -> tuple[Tensor, ...]:
    """Return the parameters of a GPT-2; the embedding decodes, counted with the last bias."""
    table = [
        Tensor("wte", (vocabulary, width), tokens * width),
        Tensor("wpe", (positions, width), tokens * width),
    ]
    for layer in range(depth):
        name, scores = f"h.{layer}", 2 * tokens * tokens * width
        table += _norm(f"{name}.ln_1", width, tokens)
        table += _linear(f"{name}.attn.c_attn", width, 3 * width, tokens, scores)
        table += _linear(f"{name}.attn.c_proj", width, width, tokens)
        table += _norm(f"{name}.ln_2", width, tokens)
        table += _linear(f"{name}.mlp.c_fc", width, 4 * width, tokens)
        table += _linear(f"{name}.mlp.c_proj", 4 * width, width, tokens)
    weight, bias = _norm("ln_f", width, tokens)
    bias = bias._replace(multiply_adds=tokens * width * vocabulary, of=table[0].shape)
    return (*table, weight, bias)


def _llama(depth: int, width: int, hidden: int, vocabulary: int, tokens: int) -> tuple[Tensor, ...]:
    """Return the parameters of a Llama without biases; the output has its own weight."""
    table = [Tensor("tok_embeddings", (vocabulary, width), tokens * width)]
    for layer in range(depth):
        name, scores = f"layers.{layer}", 2 * tokens * tokens * width
        for part in ("wq", "wk", "wv", "wo"):
            table += _linear(f"{name}.attention.{part}", width, width, tokens, scores // 4)[:1]
        for part, ends in (
            ("w1", (width, hidden)),
            ("w2", (hidden, width)),
            ("w3", (width, hidden)),
        ):
            table += _linear(f"{name}.feed_forward.{part}", *ends, tokens)[:1]
        for part in ("attention_norm", "ffn_norm"):
            table += _norm(f"{name}.{part}", width, tokens)[:1]
    table += _norm("norm", width, tokens)[:1]
    return (*table, *_linear("output", width, vocabulary, tokens)[:1])


_TABLES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    **{f"resnet{depth}": partial(_torchvision, f"resnet{depth}") for depth in (18, 50, 101, 152)},
    **{f"vgg{depth}": partial(_torchvision, f"vgg{depth}") for depth in (16, 19)},
    "bertbase": partial(_bert, 12, 768, PADDED_VOCABULARY, 64, True),
    "bertlarge": partial(_bert, 24, 1024, PADDED_VOCABULARY, 64, True),
    "bert": partial(_bert, 12, 768, CHINESE_VOCABULARY, 32, False),
    "bertcn": partial(_bert, 12, 768, CHINESE_VOCABULARY, 32, False),
    "llamadebug": partial(_llama, 6, 256, 768, 50257, 512),
    "gpt2": partial(_gpt2, 10, 768, GPT2_VOCABULARY, 1024, 1024),
}
