"""Exchanges without a forward pass or an optimizer between them: as plain DDP, and never a hang."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from harness.config.typed import BadSetting
from tests.ranks import run_ranks


def model_of() -> DistributedDataParallel:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 3))
    return DistributedDataParallel(net, bucket_cap_mb=0.001)


def train(model: nn.Module, steps: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        inputs = torch.randn(8, 12, generator=batches)
        nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return nn.utils.parameters_to_vector(model.parameters()).tolist()


def joined(apart: int, *overrides: str, **choices: str) -> list[float]:
    """Weights where rank 1 has `apart` more batches than rank 0, which has 2."""
    model = model_of()
    handle = gradnet.attach(model, *overrides, **choices) if choices else None
    with model.join():
        weights = train(model, 2 + apart * dist.get_rank())
    if handle:
        assert handle.seen.step == 1 + apart
        handle.close()
    return weights


def uneven() -> tuple[list[list[float]], list[list[float]]]:
    plain = [joined(apart) for apart in (0, 1, 4)]
    dense = [joined(apart, "controller.density=1.0", method="topk") for apart in (0, 1, 4)]
    joined(3, method="accordion")  # whose ranks agree on a density before each exchange
    joined(3, method="powersgd")
    return plain, dense


def test_ranks_may_have_unequal_numbers_of_batches() -> None:
    for plain, dense in run_ranks(2, uneven):
        torch.testing.assert_close(torch.tensor(dense), torch.tensor(plain), rtol=0, atol=1e-6)


def over_those_left() -> str:
    model = model_of()
    gradnet.attach(model, method="topk")
    with pytest.raises(BadSetting) as refused, model.join(divide_by_initial_world_size=False):
        train(model, 1)
    return str(refused.value)


def test_a_mean_over_the_ranks_that_are_left_is_refused() -> None:
    [message, _] = run_ranks(2, over_those_left)
    assert message.startswith("model.join must have divide_by_initial_world_size=True")


def after_close() -> tuple[list[float], list[float]]:
    plain, model = model_of(), model_of()
    handle = gradnet.attach(model, method="topk")
    handle.close()
    handle.close()
    return train(plain, 3), train(model, 3)


def test_after_close_the_model_trains_as_plain_ddp() -> None:
    for plain, closed in run_ranks(2, after_close):
        assert plain == closed


def in_eval_mode() -> int:
    """Frozen batch statistics: backward without a forward pass in training mode."""
    model = model_of().eval()
    handle = gradnet.attach(model, method="topk")
    train(model, 3)
    handle.close()
    return handle.seen.step


def test_a_model_in_eval_mode_may_train() -> None:
    assert run_ranks(2, in_eval_mode) == [2, 2]
