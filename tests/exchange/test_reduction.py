"""One worker's side of an exchange: what a controller is told, what is refused, what is kept."""

from math import inf, isnan, nan
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from compressors.base import Bucket, Compressor, Reduced
from compressors.checks import BadPart
from controllers.base import Controller
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from tests.compressors.reductions import CHOICES, build, gradient

SIZES = {"weight": (30, 20), "bias": (77,), "scale": (1,)}


class Alone:
    """The only worker."""

    rank, world_size, calls = 0, 1, 0

    def all_reduce(self, tensor: Tensor, op: str = "mean") -> Tensor:
        self.calls += 1
        return tensor

    def all_gather(self, *tensors: Tensor, equal: bool = False) -> list[tuple[Tensor, ...]]:
        self.calls += 1
        return [tensors]

    def all_to_all(self, *pieces: list[Tensor], equal: bool = False) -> list[tuple[Tensor, ...]]:
        self.calls += 1
        return [tuple(column[0] for column in pieces)]

    def agree(self, value: float, how: str) -> float:
        return value

    def all_reduce_min(self, values: list[float]) -> list[float]:
        return values


class Chooses(Controller):
    """A controller that always says `density`, and may need norms."""

    def __init__(self, density: float = 0.1, needs_norms: bool = False) -> None:
        self._density, self.needs_norms = density, needs_norms

    def density(self, seen) -> float:
        return self._density

    def state(self) -> dict[str, float]:
        return {}


def reduction(compressor="topk", feedback=None, **controller) -> Reduction:
    made = build(compressor) if isinstance(compressor, str) else compressor
    return Reduction(made, Chooses(**controller), "local", feedback or Residual(), Alone())


def exchange(
    of: Reduction, step: int, buckets: list[list[str]], grads: dict[str, Tensor]
) -> Tensor:
    """The means of one exchange, in the order of SIZES."""
    of.open(None)
    means = {}
    for index, names in enumerate(buckets):
        buffer = torch.cat([grads[name].flatten() for name in names])
        parts = buffer.split([grads[name].numel() for name in names])
        views = [part.view(SIZES[name]) for part, name in zip(parts, names, strict=True)]
        of.reduce_bucket(step, index, BucketBuffers(buffer, tuple(names), views))
        means |= dict(zip(names, views, strict=True))
    return torch.cat([means[name].flatten() for name in SIZES])


def grads(step: int) -> dict[str, Tensor]:
    return {
        name: gradient(torch.Size(shape).numel(), 10 * step + number).view(shape)
        for number, (name, shape) in enumerate(SIZES.items())
    }


def flat(parts: dict[str, Tensor]) -> Tensor:
    return torch.cat([parts[name].flatten() for name in SIZES]).double()


LAYOUTS = [[["scale", "bias", "weight"]], [["scale", "weight"], ["bias"]]]


@pytest.mark.parametrize("compressor", ["topk", "threshold_topk", "powersgd"])
def test_norms_are_of_the_whole_gradient_in_every_bucket_layout(compressor):
    """Against the residual that is kept: e before, and g + e less what is kept after."""
    feedback = Residual()
    worker = reduction(compressor, feedback, needs_norms=True)
    for step in range(4):
        g, e = flat(grads(step)), torch.zeros(678, dtype=torch.float64)
        if step:
            e = flat(feedback.by_parameter())
        exchange(worker, step, LAYOUTS[min(step, 1)], grads(step))
        sent = (g + e).square().sum() - flat(feedback.by_parameter()).square().sum()
        norms = SimpleNamespace(**worker.outcome())
        assert norms.grad_norm == pytest.approx(float(g.norm()), rel=1e-9)
        assert norms.residual_norm == pytest.approx(float(e.norm()), rel=1e-6)
        assert norms.gain == pytest.approx(float(sent / g.square().sum()), rel=1e-5)
        assert norms.captured == pytest.approx(float(sent / (g + e).square().sum()), rel=1e-5)
        assert 0 < norms.captured < 1


def test_without_feedback_gain_and_captured_are_one_number():
    worker = reduction("fp16", NoFeedback(), needs_norms=True)
    exchange(worker, 0, LAYOUTS[0], grads(0))
    norms = SimpleNamespace(**worker.outcome())
    assert norms.residual_norm == 0
    assert norms.gain == norms.captured == pytest.approx(1, abs=1e-3)
    assert norms.gain < 1


@pytest.mark.parametrize("compressor", ["topk", "threshold_topk", "fp16", "ef_signsgd", "dense"])
@pytest.mark.parametrize("feedback", [Residual, NoFeedback])
def test_measuring_changes_no_bit_of_the_result(compressor, feedback):
    kept, means = [], []
    for needs_norms in (False, True):
        residual = feedback()
        worker = reduction(compressor, residual, needs_norms=needs_norms)
        means.append([exchange(worker, step, LAYOUTS[1], grads(step)) for step in range(3)])
        kept.append(flat(residual.by_parameter()) if feedback is Residual else torch.zeros(1))
    assert torch.equal(kept[0], kept[1])
    assert all(torch.equal(*pair) for pair in zip(*means, strict=True))


def test_norms_that_no_controller_needs_are_not_taken(monkeypatch):
    monkeypatch.setattr("harness.engine.exchange.stats.square", lambda x: 1 / 0)
    worker = reduction()
    exchange(worker, 0, LAYOUTS[0], grads(0))
    outcome = worker.outcome()
    assert outcome.pop("density") == 0.1
    assert all(isnan(value) for value in outcome.values())


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("compressor", sorted(path.stem for path in CHOICES.glob("*.yaml")))
def test_a_gradient_that_is_not_finite_is_refused_before_anything_is_sent(compressor, bad):
    feedback = Residual(0.5)
    worker = reduction(compressor, feedback)
    exchange(worker, 0, LAYOUTS[1], grads(0))
    calls, broken = worker.workers.calls, grads(1)
    broken["bias"][3:5] = bad
    with pytest.raises(FloatingPointError, match=r"of bias has 2 of 77 .*rank 0 in step 1"):
        exchange(worker, 1, [["bias"], ["scale", "weight"]], broken)
    assert worker.workers.calls == calls


@pytest.mark.parametrize("compressor", sorted(path.stem for path in CHOICES.glob("*.yaml")))
@pytest.mark.parametrize("feedback", [Residual, NoFeedback])
def test_what_is_finite_is_never_refused_however_large(compressor, feedback):
    """Unless the compressor says that it cannot carry it."""
    worker = reduction(compressor, feedback())
    large = {name: torch.full(shape, 1.7e38) for name, shape in SIZES.items()}
    if worker.compressor.largest < 1.7e38:
        with pytest.raises(OverflowError):
            exchange(worker, 0, LAYOUTS[0], large)
        return
    exchange(worker, 0, LAYOUTS[0], large)


def test_a_sum_that_overflows_is_no_reason_to_refuse():
    large = {name: torch.full(shape, 3e38) for name, shape in SIZES.items()}
    mean = exchange(reduction("dense", NoFeedback()), 0, LAYOUTS[0], large)
    assert torch.equal(mean, torch.full((678,), 3e38))


class Half(Compressor):
    """Sends the first half of e + g; keeps the rest."""

    def reduce(self, bucket: Bucket, density: float, workers) -> Reduced:
        total = bucket.grad
        mean = total.clone()
        mean[mean.numel() // 2 :] = 0
        return Reduced(mean, unsent=total.sub_(mean))


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_a_compressor_loses_nothing_at_a_new_bucket_layout(decay):
    feedback = Residual(decay)
    worker = reduction(Half(), feedback)
    expected = torch.zeros(678, dtype=torch.float64)
    for step in range(4):
        layout = LAYOUTS[step % 2]
        mean = exchange(worker, step, layout, grads(step)).double()
        expected = decay * expected + flat(grads(step)) - mean
        torch.testing.assert_close(flat(feedback.by_parameter()), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("density", [0.0, -0.1, 1.5, nan])
def test_a_density_that_cannot_be_is_refused(density):
    with pytest.raises(BadPart, match=r"Chooses.density\(\) must be a number in \(0, 1\], got"):
        reduction(density=density).open(None)
