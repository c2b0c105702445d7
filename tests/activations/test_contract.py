"""What every compression of activations must do, found by its yaml: two sides, one operator."""

import pytest
import torch
from torch import nn

from compressors.activations.base import Activations
from compressors.activations.operator import Cut
from harness.engine.training.state_dict import state_dict
from tests.activations.schemes import NAMES, build, rectified

SHAPE = (6, 40)


def there_and_back(
    before: Activations, after: Activations, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations behind the cut and gradients before it, by one object at each side."""
    piece, kept = before.forward(rectified(*SHAPE, seed), True)
    count = before.count(SHAPE)
    assert (count is None) == (piece.mask is not None)
    assert piece.values.numel() == (count if piece.mask is None else piece.mask.sum())
    behind, held = after.received(piece, SHAPE, True)
    back = after.backward(torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)), held)
    expected = before.count_back(kept, SHAPE)
    assert (expected is None) == (back.mask is not None)
    assert back.values.numel() == (expected if back.mask is None else back.mask.sum())
    return behind, before.returned(back, kept, SHAPE)


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_with_one_side_each_do_what_the_operator_of_one_does(name: str) -> None:
    before, after, cut = build(name), build(name), Cut(build(name))
    for seed in range(5):
        x = rectified(*SHAPE, seed).requires_grad_()
        behind = cut(x.view(6, 4, 10), True)
        behind.backward(
            torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).view(6, 4, 10)
        )
        theirs, grad = there_and_back(before, after, seed)
        assert torch.equal(behind.flatten(1), theirs)
        assert x.grad is not None and torch.equal(x.grad, grad)


EXACT = [name for name in NAMES if name not in ("sketch", "dct_mp_laplace")]  # at density 1


@pytest.mark.parametrize("name", EXACT)
def test_at_density_1_everything_crosses(name: str) -> None:
    """But zeros, which arrive as zeros; their gradients stay, as behind a rectifier anyway."""
    scheme = build(name) if name == "dense" else build(name, density=1.0)
    x = rectified(*SHAPE, 1)
    behind, grad = there_and_back(scheme, scheme, 1)
    assert torch.equal(behind, x)
    whole = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    crossed = whole if name in ("dense", "topk_grad", "topk_grad_no_ef") else whole * (x > 0)
    assert torch.equal(grad, crossed)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dense"])
def test_the_operator_is_at_work_in_evaluation(name: str) -> None:
    """What is evaluated is the model with its cuts: the same activations, other outputs."""
    torch.manual_seed(0)
    cut, head = Cut(build(name)), nn.Linear(40, 3)
    x = rectified(*SHAPE, 7)
    cut(x, True)
    head.eval()
    with torch.no_grad():
        plain, evaluated, again = head(x), head(cut(x, False)), head(cut(x, False))
    changes = not name.startswith("topk_grad")  # these are of the backward pass alone
    assert torch.equal(plain, evaluated) is not changes
    assert torch.equal(evaluated, again) is not (name == "sketch")  # which is drawn anew


@pytest.mark.parametrize("name", NAMES)
def test_what_a_scheme_has_learnt_can_be_kept(name: str) -> None:
    scheme = build(name)
    there_and_back(scheme, scheme, 0)
    state_dict(scheme)


@pytest.mark.parametrize("name", ["dct_mp", "dct_mp_laplace"])
def test_the_derivative_is_the_mask(name: str) -> None:
    cut, x = Cut(build(name)), rectified(*SHAPE, 3).requires_grad_()
    behind = cut(x, True)
    behind.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, behind != 0) and torch.equal(x.grad * x, behind)
    assert cut.crossed.kept == (behind != 0).sum() and cut.crossed.entries == x.numel()
