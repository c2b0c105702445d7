"""Laws of activation compressors: two objects at a cut must equal one operator."""

from typing import Any

import torch
from torch import Tensor

from compressors.activations import calls
from compressors.activations.base import Activations
from compressors.activations.operator import Cut
from harness.contract.laws import Law, Make, demand
from harness.engine.training.state import load_state_dict, state_dict

SHAPE = (6, 40)


def rectified(rows: int, d: int, seed: int) -> Tensor:
    """Draw activations [rows, d] like those after a ReLU: about half of them are zero."""
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(seed)).relu()


def gradient(seed: int) -> Tensor:
    """Draw a gradient of SHAPE for the output of the cut."""
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def there_and_back(before: Activations, after: Activations, seed: int) -> tuple[Tensor, Tensor]:
    """Send activations forward and a gradient back over a cut, with one object on each side.

    Return both as received. Raise BadPart if a message is not what the receiver expects.
    """
    piece, kept = calls.forward(before, rectified(*SHAPE, seed), True)
    behind, held = calls.received(after, piece, SHAPE, True)
    back = calls.backward(after, gradient(seed), held)
    calls.check_count(before, "count_back()", before.count_back(kept, SHAPE), back)
    return behind, calls.returned(before, back, kept, SHAPE)


def sides_are_the_operator(make: Make) -> None:
    """Raise LawBroken unless two objects and the operator of one give equal bits for 5 batches."""
    before, after, cut = make(), make(), Cut(make())
    for seed in range(5):
        x: Any = rectified(*SHAPE, seed).requires_grad_()
        behind = cut(x.view(6, 4, 10), True)
        behind.backward(gradient(seed).view(6, 4, 10))
        theirs, grad = there_and_back(before, after, seed)
        demand(torch.equal(behind.flatten(1), theirs), f"activations differ at batch {seed}")
        demand(torch.equal(x.grad, grad), f"gradients differ at batch {seed}")


def can_be_kept(make: Make) -> None:
    """Load the state dict of a used object into a new one; errors are raised as they are."""
    scheme = make()
    there_and_back(scheme, scheme, 0)
    load_state_dict(state_dict(scheme), make())


LAWS = (
    Law("two objects do what the operator of one does, to the bit", sides_are_the_operator),
    Law("what it has learnt can be kept", can_be_kept),
)
