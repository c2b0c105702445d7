"""Real gradients under DDP: micro-batches, precision, parameters that take no part."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from compressors.dense import Dense
from controllers.fixed import Fixed
from harness.clock import Clock
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import NoFeedback
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.training.course import Course
from harness.engine.training.gradients import Trained
from harness.engine.training.replica import Distributed
from harness.engine.training.task import Task
from tests.ranks import run_ranks

BATCH, WIDTH, CLASSES, STEPS = 12, 32, 5, 10


class Plain(nn.Module):
    """Two layers; of `unused` ones, those that the inputs call for take part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.last = nn.Linear(WIDTH, 64), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


class Idle(Plain):
    """Has a layer that never takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(3, 3)


class Frozen(Idle):
    """The same, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.idle.requires_grad_(False)


class Sometimes(Plain):
    """Has a layer that a batch of large inputs passes by."""

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        return self.last(hidden if x.abs().max() > 100 else self.middle(hidden))


class Normed(Plain):
    """Has batch-norm, and layers for several buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


def batches(rank: int, large_at: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    source = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        inputs = torch.randn(BATCH, WIDTH, generator=source)
        scale = 1000.0 if step == large_at else 1.0
        yield inputs * scale, torch.randint(CLASSES, (BATCH,), generator=source)


def trained(
    model: nn.Module, large_at: int | None = None, precision: str = "float32", **options: Any
) -> Trained:
    workers, clock = Workers(dist.new_group()), Clock()
    clock.start()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shares = {name: 1 / len(names) for name in names.values()}
    reduction = Reduction(Dense(), Fixed(), "local", NoFeedback(), workers)
    exchange, cpu = Exchange(reduction, workers, clock, names, shares), torch.device("cpu")
    return Trained(
        model=model,
        replica=Distributed(model, exchange, 0.001),
        course=Course(
            samples=BATCH,
            batches=lambda step: batches(workers.rank, large_at),
            test_set=lambda: batches(workers.rank),
            steps=STEPS,
            learning_rate=lambda step: 0.1,
        ),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        exchange=exchange,
        clock=clock,
        task=Task("accuracy", cpu, precision),
        **options,
    )


def step(gradients: Trained, number: int = 0) -> float:
    gradients.exchange.begin(None)
    loss = gradients.compute(number)
    gradients.exchange.finish()
    return loss


def first_step(**options: Any) -> tuple[float, dict[str, Tensor]]:
    gradients = trained(Plain(), **options)
    gradients.settle(torch.zeros(4, WIDTH))
    loss = step(gradients)
    gradients.exchange.close()
    return loss, {name: value.grad for name, value in gradients.model.named_parameters()}


def expected(bf16: bool = False) -> tuple[list[float], dict[str, Tensor]]:
    """Losses by rank, and the mean gradient of two ranks, by torch alone in one process."""
    model, losses = Plain(), []
    for rank in range(2):
        inputs, labels = next(batches(rank))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs.float(), labels)
        (loss / 2).backward()
        losses.append(loss.item())
    return losses, {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("accumulate", [1, 2, 3, 12])
def test_micro_batches_make_the_gradient_of_one_large_batch(accumulate: int) -> None:
    losses, gradient = expected()
    for rank, (loss, found) in enumerate(run_ranks(2, first_step_of, accumulate, "float32")):
        assert loss == pytest.approx(losses[rank], rel=1e-5)
        for name, value in gradient.items():
            torch.testing.assert_close(torch.tensor(found[name]), value, rtol=1e-4, atol=1e-6)


def first_step_of(accumulate: int, precision: str) -> tuple[float, dict[str, Any]]:
    loss, gradient = first_step(accumulate=accumulate, precision=precision)
    assert all(value.dtype == torch.float32 for value in gradient.values())
    return loss, {name: value.tolist() for name, value in gradient.items()}


def test_bf16_is_what_forward_computes_in_and_nothing_else() -> None:
    losses, gradient = expected(bf16=True)
    _, exact = expected()
    for rank, (loss, found) in enumerate(run_ranks(2, first_step_of, 1, "bf16")):
        assert loss == pytest.approx(losses[rank], rel=1e-5)
        for name, value in gradient.items():
            here = torch.tensor(found[name])
            torch.testing.assert_close(here, value, rtol=1e-4, atol=1e-6)
            assert not torch.equal(here, exact[name])
            assert (here - exact[name]).norm() < 0.05 * exact[name].norm()


def layouts() -> None:
    """Settling changes nothing that a run sees, and leaves the buckets of every later step."""
    gradients = trained(Normed())
    before = {name: value.clone() for name, value in gradients.model.state_dict().items()}
    gradients.settle(torch.zeros(4, WIDTH))
    after = gradients.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(value.grad is None for value in gradients.model.parameters())
    found: list[list[tuple[str, ...]]] = []
    submit = gradients.exchange.submit

    def seen(laid: BucketBuffers, *rest: Any, **more: Any) -> Any:
        found[-1].append(laid.names)
        return submit(laid, *rest, **more)

    gradients.exchange.submit = seen  # type: ignore[method-assign]
    for number in range(3):
        found.append([])
        step(gradients, number)
        gradients.update(number)
    gradients.exchange.close()
    assert len(found[0]) > 1 and found[0] == found[1] == found[2]


def test_the_buckets_of_the_first_step_are_those_of_all() -> None:
    run_ranks(2, layouts)


def idle() -> None:
    gradients = trained(Idle())
    with pytest.raises(ValueError, match=r"no gradient reached idle\.weight, idle\.bias; every"):
        gradients.settle(torch.zeros(4, WIDTH))
    gradients.exchange.close()
    frozen = trained(Frozen())
    frozen.settle(torch.zeros(4, WIDTH))
    step(frozen)
    frozen.exchange.close()


def test_a_parameter_without_a_gradient_is_named_before_the_first_step() -> None:
    run_ranks(2, idle)


def sometimes(accumulate: int) -> None:
    """Alone: other ranks learn of it as of any rank that fails."""
    gradients = trained(Sometimes(), large_at=1, accumulate=accumulate)
    gradients.settle(torch.zeros(4, WIDTH))
    step(gradients)
    gradients.update(0)
    with pytest.raises(ValueError, match=r"no gradient reached .*middle\.weight"):
        step(gradients, 1)
    gradients.exchange.close()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_parameter_that_one_step_leaves_out_is_named_at_that_step(accumulate: int) -> None:
    run_ranks(1, sometimes, accumulate)
