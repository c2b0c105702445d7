"""What is pushed, and read at a server, is what workers among themselves would come to."""

from functools import partial

import pytest
import torch
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from controllers.fixed import Fixed
from harness.config.search_path import choices
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import Reduction
from harness.engine.parameter_server.captured import Captured, Contribution, alone, read
from harness.engine.parameter_server.gradient import Drain, Gradient
from harness.engine.parameter_server.server_model import FlatParameters, ServerModel
from tests.virtual.threads import together

CHOICES = choices("compressor")
WORKERS, STEPS, DENSITY = 3, 5, 0.25


def compressor(name: str):
    own = yaml.safe_load(CHOICES[name].read_text())
    return instantiate(OmegaConf.create({"seed": 0, "compressor": own}).compressor)


PUSHED = [name for name in CHOICES if compressor(name).pushes]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 10))


def drawn(step: int, rank: int, n: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(100 * step + rank))


def feedback(name: str):
    return NoFeedback() if name in ("dgc", "dense", "signsgd") else Residual()


def fill(flat: FlatParameters, grad: torch.Tensor) -> None:
    parts = grad.split([laid.buffer.numel() for laid in flat.laid])
    for laid, part in zip(flat.laid, parts, strict=True):
        laid.buffer.copy_(part)


def of(flat: FlatParameters) -> torch.Tensor:
    """The gradient, [n]."""
    return torch.cat([laid.buffer for laid in flat.laid])


def among_workers(name: str, bucket_mb: float) -> list[torch.Tensor]:
    """The mean gradients of every step, by collectives."""
    flats = [FlatParameters(model(), bucket_mb) for _ in range(WORKERS)]
    kept = [(compressor(name), feedback(name)) for _ in range(WORKERS)]

    def work(step: int, workers) -> torch.Tensor:
        flat, (own, residual) = flats[workers.rank], kept[workers.rank]
        reduction = Reduction(own, Fixed(DENSITY), "local", residual, workers)
        fill(flat, drawn(step, workers.rank, flat.weights.numel()))
        reduction.open(None)
        for index, part in enumerate(flat.laid):
            reduction.reduce_bucket(step, index, part)
        return of(flat)

    return [together(WORKERS, partial(work, step))[0] for step in range(STEPS)]


def at_a_server(name: str, bucket_mb: float) -> list[torch.Tensor]:
    """The same, by pushes, each of which has been a layout and tensors."""
    server = ServerModel(
        model=model(),
        update=lambda version: None,
        compressor=compressor(name),
        bucket_mb=bucket_mb,
    )
    trainers = []
    for rank in range(WORKERS):
        captured = Captured(rank, WORKERS, alone)
        own = compressor(name), Fixed(DENSITY), "local", feedback(name)
        drain, flat = Drain(None, 0), FlatParameters(model(), bucket_mb)
        trainers.append((Gradient(Reduction(*own, captured), captured, drain), flat))
    means = []
    for step in range(STEPS):
        pushes = []
        for rank, (trainer, flat) in enumerate(trainers):
            fill(flat, drawn(step, rank, flat.weights.numel()))
            trainer.reduction.open(None)
            found = trainer.compress(step, flat.laid)
            pushes.append(sent(found.push, len(server.flat.laid)))
            assert server.fault(pushes[-1]) is None
        server.apply(pushes)
        means.append(of(server.flat))
    return means


def sent(push: Contribution, buckets: int) -> Contribution:
    """What comes out at the other end of a connection."""
    room, tensors = read(push.layout(), buckets, 1 << 30), iter(push.tensors())
    taken = [[tuple(each.copy_(next(tensors)) for each in call) for call in b] for b in room]
    return Contribution(push.step, push.density, taken)


@pytest.mark.parametrize("bucket_mb", [25.0, 0.002])
@pytest.mark.parametrize("name", PUSHED)
def test_a_server_makes_of_pushes_what_workers_would_agree_on(name, bucket_mb):
    pairs = zip(at_a_server(name, bucket_mb), among_workers(name, bucket_mb), strict=True)
    for ours, theirs in pairs:
        within = 1e-2 if name in ("fp16", "bf16") else 1e-6  # which add up in that type
        torch.testing.assert_close(ours, theirs, rtol=within, atol=within)


def test_those_that_need_the_others_say_so():
    together = {"acp_sgd", "demo", "int4", "int8", "oktopk", "onebit", "powersgd"}
    assert set(CHOICES) - set(PUSHED) == together
