"""GradScaler with an attached model: it trains as under plain DDP, and loses no gradient."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

import gradnet
from harness.engine.exchange.bucket_lanes import ExchangeError
from tests.ranks import run_ranks

LR = 0.1
STEPS = 6


def model_of(**more: bool) -> DistributedDataParallel:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    return DistributedDataParallel(net, bucket_cap_mb=0.001, **more)  # several buckets


def trained(
    method: str | None, scaler: GradScaler, overflow_at: int | None = None, **more: bool
) -> list[float]:
    """Weights after STEPS good steps; rank 1's loss is infinite in an extra step `overflow_at`."""
    model = model_of(**more)
    handle = gradnet.attach(model, method=method) if method else None
    optimizer = torch.optim.SGD(model.parameters(), LR)
    batches = torch.Generator().manual_seed(dist.get_rank())
    inputs = torch.randn(STEPS, 16, 20, generator=batches)
    order = list(range(STEPS))
    if overflow_at is not None:
        order.insert(overflow_at, -1)
    for number in order:
        batch = inputs[max(number, 0)]
        loss = nn.functional.cross_entropy(model(batch), batch[:, :5].argmax(1))
        if number < 0 and dist.get_rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    if handle:
        handle.close()
    return nn.utils.parameters_to_vector(model.parameters()).tolist()


def no_scaler() -> GradScaler:
    return GradScaler("cpu", enabled=False)


def overflowing(methods: list[str]) -> list[tuple[list[float], list[float]]]:
    weights = []
    for method in methods:
        scaler = GradScaler("cpu", init_scale=256.0)
        with_overflow = trained(method, scaler, 3)
        assert scaler.get_scale() == 128.0
        weights.append((trained(method, no_scaler()), with_overflow))
    for more in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        plain = trained(None, GradScaler("cpu", init_scale=256.0), 0, **more)
        dense = trained("allreduce", GradScaler("cpu", init_scale=256.0), 0, **more)
        weights.append((plain, dense))
    return weights


def test_a_step_that_overflows_leaves_no_trace() -> None:
    """Weights are those of the same training without the step, bit for bit; scales are 2^n."""
    for weights in run_ranks(2, overflowing, ["topk", "powersgd", "onebit", "accordion"]):
        for without_the_step, with_it in weights:
            assert without_the_step == with_it


def growing(method: str) -> tuple[list[float], list[float]]:
    doubled = GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    return trained(method, no_scaler()), trained(method, doubled)


@pytest.mark.parametrize("method", ["topk", "dgc"])
def test_what_waits_keeps_its_unit_while_the_scale_changes(method: str) -> None:
    """A residual, or DGC's momentum, is of the gradient itself, whatever scaled it later."""
    for unscaled, scaled in run_ranks(2, growing, method):
        assert unscaled == scaled


def unscaled_overflow(method: str) -> str:
    with pytest.raises(ExchangeError) as stopped:
        trained(method, no_scaler(), 2)
    return str(stopped.value)


@pytest.mark.parametrize("method", ["topk", "qsgd"])
def test_without_a_scaler_all_ranks_stop_with_the_same_words(method: str) -> None:
    messages = run_ranks(2, unscaled_overflow, method)
    assert messages[0] == messages[1]
    assert "elements that are not finite, at rank 1 in step 2" in messages[0]
    assert "\n" not in messages[0]


def overflowed(**scaling: float) -> tuple:
    """A model whose loss is infinite at rank 0, after backward."""
    model = model_of()
    handle = gradnet.attach(model, method="topk")
    scaler = GradScaler("cpu", **scaling)
    loss = model(torch.ones(2, 20)).sum() * (float("inf") if dist.get_rank() == 0 else 1.0)
    scaler.scale(loss).backward()
    return model, handle, torch.optim.SGD(model.parameters(), LR), scaler


def stepping_all_the_same() -> str:
    _, handle, optimizer, _ = overflowed()
    with pytest.raises(FloatingPointError) as stopped:
        optimizer.step()
    handle.close()
    assert GradScaler.scale.__qualname__ == "GradScaler.scale"
    return str(stopped.value)


def test_an_optimizer_that_steps_without_the_scaler_is_stopped_at_all_ranks() -> None:
    messages = run_ranks(2, stepping_all_the_same)
    assert messages[0] == messages[1]
    assert messages[0].startswith("the gradient of step 0 is not finite at rank 0")


def grads_of(model: DistributedDataParallel) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def clipped() -> bool:
    """Unscaled by hand to be clipped, as torch's examples do: every rank finds the infinity."""
    model, handle, optimizer, scaler = overflowed(init_scale=4.0)
    scaler.unscale_(optimizer)
    finite = [bool(grad.isfinite().all()) for grad in grads_of(model)]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    handle.close()
    return any(finite)


def test_every_rank_sees_the_overflow_of_one() -> None:
    assert run_ranks(2, clipped) == [False, False]
