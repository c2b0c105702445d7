"""Compressors on a GPU, against the CPU; collected where there is one."""

import pytest
import torch
from torch import Tensor

from compressors.base import Reduced
from harness.engine.exchange.feedback import NoFeedback, Residual
from tests.compressors.reductions import Outcome, Replica, build, gradient, variants
from tests.compressors.threads import ThreadWorkers, together

STEPS, WORKERS, SIZE = 3, 3, 20_000
# Other entries are sent: those that reach the threshold of another sample, or find room first.
OTHER_ENTRIES = ("carried_topk",)


@pytest.fixture(scope="module", autouse=True)
def _first_decomposition() -> None:
    """At first use torch loads what decomposes matrices; threads must not at once."""
    torch.linalg.qr(torch.eye(2, device="cuda"))


def outcomes(variant: str, device: str, kept: bool, density: float) -> list[list[Outcome]]:
    """By worker and step; on the CPU."""

    def work(workers: ThreadWorkers) -> list[Outcome]:
        compressor = build(variant)
        kept_here = kept and "error_feedback" not in compressor.replaces
        replica = Replica(workers, compressor, Residual() if kept_here else NoFeedback())
        found = []
        for step in range(STEPS):
            grad = gradient(SIZE, 10 * step + workers.rank).to(device)
            before, (mean, unsent), sent = replica.reduce(grad, density, step)
            there = Reduced(mean.cpu(), None if unsent is None else unsent.cpu())
            found.append(Outcome(before.cpu(), there, sent))
        return found

    return together(WORKERS, work)


def apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm().clamp(min=1e-30))


@pytest.mark.parametrize("variant", variants())
def test_a_gpu_reduces_as_a_cpu_does(variant: str) -> None:
    density = 1.0 if not build(variant).has_level else 0.05
    ours = outcomes(variant, "cuda", True, density)
    theirs = outcomes(variant, "cpu", True, density)
    for mine, other in zip(sum(ours, []), sum(theirs, []), strict=True):
        assert mine.reduced.mean.isfinite().all()
        if variant.split()[0] in OTHER_ENTRIES:
            continue
        assert mine.contributed_bytes == other.contributed_bytes
        assert apart(mine.reduced.mean, other.reduced.mean) < 1e-4


@pytest.mark.parametrize("variant", OTHER_ENTRIES)
def test_what_is_not_sent_is_kept_on_a_gpu(variant: str) -> None:
    by_worker = outcomes(variant, "cuda", True, 0.05)
    for step in range(STEPS):
        each = [found[step] for found in by_worker]
        sent = sum(one.grad - one.reduced.unsent for one in each) / WORKERS
        assert apart(sent, each[0].reduced.mean) < 1e-4
