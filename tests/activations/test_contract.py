"""What every compression of activations must do, found by its yaml: two sides, one operator."""

from functools import partial

import pytest
import torch
from torch import nn

from compressors.activations.operator import Cut
from harness.contract.activations import LAWS, SHAPE, gradient, rectified, there_and_back
from harness.contract.laws import Case, Law
from tests.activations.schemes import NAMES, build
from tests.contract import cases


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("law", "case"), cases(LAWS))
def test_a_scheme_keeps_the_law(law: Law, case: Case, name: str) -> None:
    law.holds(partial(build, name), *case)


EXACT = [name for name in NAMES if name not in ("sketch", "dct_mp_laplace")]  # at density 1


@pytest.mark.parametrize("name", EXACT)
def test_at_density_1_everything_crosses(name: str) -> None:
    """But zeros, which arrive as zeros; their gradients stay, as behind a rectifier anyway."""
    scheme = build(name) if name == "dense" else build(name, density=1.0)
    x = rectified(*SHAPE, 1)
    behind, grad = there_and_back(scheme, scheme, 1)
    assert torch.equal(behind, x)
    whole = gradient(1)
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


@pytest.mark.parametrize("name", ["dct_mp", "dct_mp_laplace"])
def test_the_derivative_is_the_mask(name: str) -> None:
    cut, x = Cut(build(name)), rectified(*SHAPE, 3).requires_grad_()
    behind = cut(x, True)
    behind.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, behind != 0) and torch.equal(x.grad * x, behind)
    assert cut.crossed.kept == (behind != 0).sum() and cut.crossed.entries == x.numel()
