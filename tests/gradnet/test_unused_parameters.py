"""Parameters that take part in some steps only: nothing that error feedback took is lost."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from harness.config.typed import BadSetting
from tests.ranks import run_ranks

STEPS, LAYERS, WIDTH = 20, 3, 12


class StochasticDepth(nn.Module):
    """Layers of which a step uses some."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: Tensor, used: list[bool]) -> Tensor:
        for layer, is_used in zip(self.layers, used, strict=True):
            x = x + layer(x) if is_used else x
        return x


def pattern(alike: bool) -> list[list[bool]]:
    """Which layers each step uses: at least one, on all ranks alike or on each its own."""
    random = torch.Generator().manual_seed(7 if alike else 7 + dist.get_rank())
    some = torch.rand(STEPS, LAYERS, generator=random) < 0.4
    some[:, 0] |= ~some.any(1)
    return some.tolist()


def imbalance(alike: bool, overrides: list[str], choices: dict) -> float:
    """Largest relative difference between gradients, and what was applied or still waits."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        StochasticDepth(), find_unused_parameters=True, gradient_as_bucket_view=alike
    )
    bare = StochasticDepth()
    handle = gradnet.attach(model, *overrides, **choices)
    bare.load_state_dict(model.module.state_dict())
    parameters = dict(model.module.named_parameters())
    owed = {name: torch.zeros(each.numel()) for name, each in parameters.items()}
    applied = {name: torch.zeros(each.numel()) for name, each in parameters.items()}
    inputs = torch.randn(STEPS, 4, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    for batch, used in zip(inputs, pattern(alike), strict=True):
        bare(batch, used).square().mean().backward()
        model(batch, used).square().mean().backward()
        for name, own in bare.named_parameters():
            if own.grad is not None:
                owed[name] += own.grad.flatten()
            if (arrived := parameters[name].grad) is not None:
                applied[name] += arrived.flatten()
        bare.zero_grad()
        model.zero_grad()
    reduction = handle.exchange.reduction
    if choices["compressor"] == "dgc":
        waits = dict(reduction.compressor.sums)
    else:
        waits = dict(reduction.feedback.by_parameter())
    handle.close()
    worst = 0.0
    for name, gradient in owed.items():
        rest = gradient - waits.get(name, torch.zeros_like(gradient))
        dist.all_reduce(rest)
        dist.all_reduce(gradient)
        error = (rest / 2 - applied[name]).norm() / gradient.norm() if gradient.norm() else 0.0
        worst = max(worst, float(error))
    return worst


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("compressor", ["topk", "powersgd", "ef_signsgd", "dgc"])
def test_every_gradient_arrives_or_waits(compressor: str, alike: bool) -> None:
    overrides = ["controller.density=0.1"] if compressor == "topk" else []
    if compressor == "dgc":  # whose v holds all that is not sent when it has no momentum
        overrides = ["controller.density=0.1", "compressor.momentum=0.0"]
    choices = {"compressor": compressor, "error_feedback": compressor != "dgc"}
    assert max(run_ranks(2, imbalance, alike, overrides, choices)) < 1e-5


def refused() -> str:
    model = DistributedDataParallel(StochasticDepth(), find_unused_parameters=True)
    with pytest.raises(BadSetting) as error:
        gradnet.attach(model, method="onebit")
    return str(error.value)


def test_a_compressor_that_keeps_errors_by_bucket_refuses_unused_parameters() -> None:
    [message, _] = run_ranks(2, refused)
    assert message.startswith("model's find_unused_parameters must be False with this compressor")
