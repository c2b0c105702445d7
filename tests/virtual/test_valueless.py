"""A tensor without values tells 0 where a replay asks, and nothing elsewhere."""

import pytest
import torch

from harness.virtual import valueless


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_what_has_no_value_is_0_while_a_bucket_is_reduced(kind):
    asked = torch.empty((), dtype=kind, device="meta")
    with valueless.on(torch.empty(3, device="meta")):
        assert asked.item() == 0 and not asked
        with valueless.on(torch.ones(3)), pytest.raises(RuntimeError, match="meta tensors"):
            asked.item()
        assert asked.item() == 0
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        asked.item()


def test_it_is_over_when_a_reduction_fails():
    asked = torch.empty((), device="meta")
    with pytest.raises(ZeroDivisionError), valueless.on(asked):
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="meta tensors"):
        asked.item()


def test_values_that_are_there_are_told():
    with valueless.on(torch.ones(3)):
        assert torch.tensor(7.5).item() == 7.5
    with valueless.on(torch.ones(3, device="meta")):
        assert torch.tensor(7.5).item() == 7.5
