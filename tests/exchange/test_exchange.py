"""The exchange under real DDP and gloo: equal to plain DDP, in order, and honest about failures."""

import hashlib
import threading
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from compressors.base import Compressor, Reduced
from controllers.base import Controller
from harness.clock import Clock
from harness.engine.exchange.bucket_lanes import Exchange, ExchangeError
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from tests.controllers.observations import seen
from tests.ranks import run_ranks

BUCKET_MB = 0.02  # several buckets in a small model


@dataclass
class Mean(Compressor):
    """Dense reference compressor."""

    uniform_density = True

    def reduce(self, bucket, density, workers):
        return Reduced(workers.all_reduce(bucket.grad), None)


@dataclass
class Half(Compressor):
    """Sends the first half of every bucket, keeps the rest."""

    uniform_density = True

    def reduce(self, bucket, density, workers):
        n = bucket.grad.numel()
        sent, unsent = bucket.grad.clone(), bucket.grad.clone()
        sent[n // 2 :] = 0
        unsent[: n // 2] = 0
        return Reduced(workers.all_reduce(sent), unsent)


@dataclass
class Breaks(Compressor):
    """Fails in the third exchange on rank 0."""

    uniform_density = True

    def reduce(self, bucket, density, workers):
        if bucket.step == 2 and workers.rank == 0:
            raise ValueError("the compressor is broken")
        return Reduced(workers.all_reduce(bucket.grad), None)


class Constant(Controller):
    """A controller that never changes its mind."""

    def density(self, seen):
        return 0.5

    def state(self):
        return {}


def small_model():
    torch.manual_seed(1)
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def _exchange(model, compressor, feedback=None):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    clock = Clock()
    clock.start()
    shares = {name: 1 / len(names) for name in names.values()}
    workers = Workers(dist.new_group())
    reduction = Reduction(compressor, Constant(), "local", feedback or NoFeedback(), workers)
    return Exchange(reduction, workers, clock, names, shares)


def _train(steps, compressor=None, release=None):
    """Digest of the weights after `steps`, and what each exchange took."""
    model = small_model()
    exchange = _exchange(model, compressor) if compressor else None
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    if exchange:
        ddp.register_comm_hook(None, exchange.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    took = []
    for _ in range(steps):
        if exchange:
            exchange.begin(release(exchange.clock.now()) if release else None)
        ddp(torch.randn(8, 64, generator=generator)).square().mean().backward()
        if exchange:
            took.append((exchange.finish(), exchange.clock.now()))
        optimizer.step()
        optimizer.zero_grad()
    if exchange:
        exchange.close()
    weights = torch.cat([parameter.flatten() for parameter in model.parameters()])
    return hashlib.sha256(weights.detach().numpy().tobytes()).hexdigest(), took


@pytest.mark.parametrize("size", [2, 3])
def test_dense_is_bit_equal_to_plain_ddp_over_50_steps(size):
    plain = {digest for digest, _ in run_ranks(size, _train, 50)}
    ours = {digest for digest, _ in run_ranks(size, _train, 50, Mean())}
    assert len(plain) == 1
    assert ours == plain


def test_bytes_and_seconds_of_an_exchange_add_up():
    parameters = sum(parameter.numel() for parameter in small_model().parameters())
    for _, took in run_ranks(2, _train, 5, Mean()):
        for exchanged, _ in took:
            assert exchanged.dense_bytes == 4 * parameters
            assert exchanged.sent_bytes == exchanged.received_bytes == exchanged.dense_bytes
            assert 0 <= exchanged.exposed_s <= exchanged.comm_s
            assert exchanged.compress_s >= 0 and exchanged.late_s == 0


@dataclass
class Looks(Compressor):
    """Notes which of the model's parameters it was shown where, and whether they fit."""

    model: nn.Module
    uniform_density = True

    def __post_init__(self):
        self.fits, self.layouts = [], set()

    def reduce(self, bucket, density, workers):
        own = dict(self.model.named_parameters())
        shown = zip(bucket.names, bucket.parameters, bucket.gradients, strict=True)
        for name, parameter, gradient in shown:
            self.fits.append(torch.equal(parameter, own[name]) and not parameter.requires_grad)
            self.fits.append(parameter.shape == gradient.shape)
        self.layouts.add(bucket.names)
        return Reduced(workers.all_reduce(bucket.grad), None)


def _look():
    model = small_model()
    looks = Looks(model)
    exchange = _exchange(model, looks)
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    ddp.register_comm_hook(None, exchange.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        exchange.begin(None)
        ddp(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
    exchange.close()
    return looks.fits, len(looks.layouts)


def test_a_bucket_shows_the_weights_of_now_in_the_order_of_its_gradients():
    for fits, layouts in run_ranks(2, _look):
        assert layouts > 1  # DDP did rebuild
        assert len(fits) == 3 * 2 * 6 and all(fits)


FORWARD_S, BACKWARD_S = 0.02, 0.1


def _release(begin):
    return lambda share: begin + FORWARD_S + share * BACKWARD_S


def test_pacing_releases_no_bucket_early_and_ends_backward_on_time():
    for _, took in run_ranks(2, _train, 6, Mean(), _release):
        ends = [end for _, end in took]
        for (exchanged, end), before in zip(took[1:], ends, strict=False):
            assert end - before >= FORWARD_S + BACKWARD_S
            assert exchanged.compute_end - before >= FORWARD_S + BACKWARD_S
            assert exchanged.backward_s == pytest.approx(BACKWARD_S + exchanged.late_s)


def _timed_backward():
    """Of 3 steps: how long backward took and could hide, and bounds from clock readings around."""
    model = small_model()
    exchange = _exchange(model, Mean())
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    ddp.register_comm_hook(None, exchange.hook)
    measured = []
    for _ in range(3):
        exchange.begin(None)
        loss = ddp(torch.ones(8, 64)).square().mean()
        before = exchange.clock.now()
        exchange.begin_backward()
        after = exchange.clock.now()
        loss.backward()
        took = exchange.finish()
        bounds = took.compute_end - after, took.compute_end - before
        measured.append((took.overlap_window_s, took.backward_s, *bounds))
    exchange.close()
    return measured


def test_backward_is_measured_from_where_forward_ends():
    for measured in run_ranks(2, _timed_backward):
        for overlap_window_s, backward_s, least_s, most_s in measured:
            assert overlap_window_s <= backward_s
            assert least_s <= backward_s <= most_s


def _conserve():
    """Sent plus kept equals what went in, over a bucket rebuild."""
    model = small_model()
    feedback = Residual()
    exchange = _exchange(model, Half(), feedback)
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    ddp.register_comm_hook(None, exchange.hook)
    sent = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    layouts = set()
    for step in range(4):
        exchange.begin(None)
        x = torch.full((8, 64), float(step + 1))
        ddp(x).square().mean().backward()
        for name, parameter in model.named_parameters():
            sent[name] += parameter.grad
        layouts.add(tuple(feedback._buckets))
        ddp.zero_grad()
    exchange.close()
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(4):
        model.zero_grad()
        model(torch.full((8, 64), float(step + 1))).square().mean().backward()
        for name, parameter in model.named_parameters():
            total[name] += parameter.grad
    kept = feedback.by_parameter()
    errors = [
        (sent[name].flatten() + kept[name] - total[name].flatten()).abs().max().item()
        for name in total
    ]
    return max(errors), max(t.abs().max().item() for t in total.values()), len(layouts)


def test_error_feedback_loses_nothing_over_the_bucket_rebuild():
    for error, scale, layouts in run_ranks(2, _conserve):
        assert layouts > 1  # DDP did rebuild, else this shows nothing
        assert error <= 1e-5 * scale


def _fails_alone():
    """One worker is enough: the thread's error has to reach the training thread."""
    model = small_model()
    exchange = _exchange(model, Breaks())
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB)
    ddp.register_comm_hook(None, exchange.hook)
    for step in range(3):
        exchange.begin(None)
        loss = ddp(torch.ones(8, 64)).square().mean()
        try:
            loss.backward()
        except RuntimeError:
            cause = exchange.error
            with pytest.raises(ExchangeError):
                exchange.begin(None)
            return step, repr(cause)
        exchange.observe(seen(step))
    return None


def test_an_error_in_the_thread_ends_backward_with_its_cause():
    [(step, cause)] = run_ranks(1, _fails_alone)
    assert step == 2
    assert "the compressor is broken" in cause


def test_close_ends_the_thread():
    def close():
        exchange = _exchange(small_model(), Mean())
        exchange.close()
        return [thread.name for thread in threading.enumerate() if thread.name == "exchange"]

    assert run_ranks(1, close) == [[]]


def test_a_hanging_collective_is_reported_by_close(monkeypatch):
    monkeypatch.setattr("harness.engine.exchange.bucket_lanes.JOIN_S", 0.2)

    def hang():
        model = small_model()
        exchange = _exchange(model, Mean())
        exchange.begin(lambda share: exchange.clock.now() + 2.0)
        name, parameter = next(iter(model.named_parameters()))
        views = [torch.zeros_like(parameter)]
        exchange.submit(BucketBuffers(torch.zeros(parameter.numel()), (name,), views))
        try:
            exchange.close()
        except ExchangeError as error:
            for thread in threading.enumerate():
                if thread.name == "exchange":
                    thread.join(10.0)  # of the 2 s that it hangs
            return str(error)
        return "closed"

    assert "did not end" in run_ranks(1, hang)[0]
