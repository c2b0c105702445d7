"""The same steps in plain torch code, as one would write them first: what the compressors beat.

Each adds a residual where the method keeps one, compresses, decompresses, and keeps what is left.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from local import parameters
from torch import Tensor

DENSITY = 0.01
RANK = 4


class Plain(ABC):
    """One worker's state: residual [n], and the gradient of this step."""

    def __init__(self, grad: Tensor) -> None:
        self.source, self.grad = grad, grad.clone()
        self.residual = torch.zeros_like(grad)
        self.mean = torch.zeros_like(grad)

    def prepare(self) -> None:
        self.grad.copy_(self.source)

    @abstractmethod
    def work(self) -> None:
        """One step: from `grad` to `mean` and `residual`."""


class TopK(Plain):
    def work(self) -> None:
        total = self.grad + self.residual
        self.send(total, self.select(total))

    def select(self, total: Tensor) -> Tensor:
        return total.abs().topk(int(DENSITY * total.numel()), sorted=False).indices

    def send(self, total: Tensor, index: Tensor) -> None:
        sent = torch.zeros_like(total)
        sent[index] = total[index]
        self.residual, self.mean = total - sent, sent


class SampledTopK(TopK):
    """A threshold from 1 % of the elements, drawn at random."""

    def select(self, total: Tensor) -> Tensor:
        magnitude = total.abs()
        some = magnitude[torch.randint(total.numel(), (total.numel() // 100,))]
        threshold = some.topk(max(1, int(DENSITY * some.numel()))).values.min()
        return (magnitude >= threshold).nonzero().flatten()


class RandomK(TopK):
    def select(self, total: Tensor) -> Tensor:
        return torch.randperm(total.numel())[: int(DENSITY * total.numel())]


class PowerSGD(Plain):
    """Factors with r columns; vectors pass as they are."""

    def __init__(self, grad: Tensor) -> None:
        super().__init__(grad)
        self.shapes = list(parameters(grad.numel()).values())
        self.queries = [
            torch.randn(shape.numel() // shape[0], RANK) for shape in map(torch.Size, self.shapes)
        ]

    def work(self) -> None:
        total = self.grad + self.residual
        sent = [
            self.product(i, part.view(shape[0], -1)).flatten() if len(shape) > 1 else part
            for i, (shape, part) in enumerate(zip(self.shapes, self.split(total), strict=True))
        ]
        self.mean = torch.cat(sent)
        self.residual = total - self.mean

    def split(self, flat: Tensor) -> tuple[Tensor, ...]:
        return flat.split([torch.Size(shape).numel() for shape in self.shapes])

    def product(self, i: int, matrix: Tensor) -> Tensor:
        left = torch.linalg.qr(matrix @ self.queries[i]).Q
        self.queries[i] = matrix.t() @ left
        return left @ self.queries[i].t()


class ACPSGD(PowerSGD):
    """Even steps only: the odd ones cost the same."""

    def product(self, i: int, matrix: Tensor) -> Tensor:
        right = torch.linalg.qr(self.queries[i]).Q
        return matrix @ right @ right.t()


class EFSignSGD(Plain):
    def work(self) -> None:
        total = self.grad + self.residual
        self.mean = total.sign() * total.abs().mean()
        self.residual = total - self.mean


class QSGD(Plain):
    """A norm for every 512 elements, 8 bits, no residual."""

    def work(self) -> None:
        blocks = torch.nn.functional.pad(self.grad, (0, -self.grad.numel() % 512)).view(-1, 512)
        norms = blocks.abs().amax(1, keepdim=True)
        levels = (blocks.abs() / norms * 127 + torch.rand_like(blocks)).floor().to(torch.int8)
        codes = levels * blocks.sign().to(torch.int8)
        self.mean = (codes * (norms / 127)).flatten()[: self.grad.numel()]


PLAIN: dict[str, Callable[[Tensor], Plain]] = {
    "acp_sgd": ACPSGD,
    "ef_signsgd": EFSignSGD,
    "powersgd": PowerSGD,
    "qsgd": QSGD,
    "randomk": RandomK,
    "sampled_topk": SampledTopK,
    "topk": TopK,
}
