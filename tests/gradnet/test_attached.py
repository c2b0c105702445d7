"""`gradnet.attach`: DDP trains as before, but for what its method leaves out."""

import io
import threading

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from harness.config.typed import BadSetting
from tests.ranks import run_ranks

STEPS, BATCH, CLASSES = 6, 8, 10
LR = 0.5
DENSITY = 0.1


def a_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, CLASSES))


def batches(rank: int, first: int = 0) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(rank)
    inputs = torch.randn(STEPS, BATCH, 20, generator=random)
    return [(each, each[:, :CLASSES].argmax(1)) for each in inputs[first:]]


def distributed(**more) -> DistributedDataParallel:
    return DistributedDataParallel(a_model(), **more)


def trained(model: nn.Module, given: list[tuple[Tensor, Tensor]], momentum: float = 0.0) -> Tensor:
    """Weights of `model` after a step for each batch."""
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum)
    for inputs, labels in given:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def both() -> tuple[list[float], list[float], int]:
    mine = batches(dist.get_rank())
    plain = trained(distributed(bucket_cap_mb=0.01), mine)
    model = distributed(bucket_cap_mb=0.01)
    handle = gradnet.attach(model, method="allreduce")
    found = trained(model, mine)
    handle.close()
    return plain.tolist(), found.tolist(), handle.seen.step


def test_dense_is_ddp_bit_for_bit():
    for plain, found, last in run_ranks(2, both):
        assert plain == found
        assert last == STEPS - 1


def sparse() -> tuple[list[float], dict]:
    model = distributed()
    handle = gradnet.attach(model, f"controller.density={DENSITY}", method="topk")
    found = trained(model, batches(dist.get_rank()))
    handle.close()
    return found.tolist(), {"sent": handle.seen.sent_bytes, "density": handle.seen.density}


def test_topk_sends_the_largest_and_keeps_the_rest():
    """Against the algorithm written down here, of one bucket, as so small a model has."""
    models, size = [a_model(), a_model()], weights(a_model()).numel()
    left, kept = [torch.zeros(size), torch.zeros(size)], round(DENSITY * size)
    for step in range(STEPS):
        sums = torch.zeros(size)
        for rank, model in enumerate(models):
            inputs, labels = batches(rank)[step]
            nn.functional.cross_entropy(model(inputs), labels).backward()
            whole = left[rank] + nn.utils.parameters_to_vector(p.grad for p in model.parameters())
            index = whole.abs().topk(kept).indices
            sums[index] += whole[index]
            left[rank] = whole.index_fill(0, index, 0)
        for model in models:
            nn.utils.vector_to_parameters(weights(model) - LR * sums / 2, model.parameters())
            model.zero_grad()
    for found, told in run_ranks(2, sparse):
        torch.testing.assert_close(Tensor(found), weights(models[0]), rtol=1e-4, atol=1e-6)
        assert told["density"] == DENSITY
        assert told["sent"] >= 8 * kept  # a value and a position each


def accumulated() -> list[int]:
    model = distributed()
    handle = gradnet.attach(model, method="topk")
    exchanges = []
    optimizer = torch.optim.SGD(model.parameters(), LR)
    for inputs, labels in batches(dist.get_rank()):
        with model.no_sync():
            nn.functional.cross_entropy(model(inputs), labels).backward()
        model.eval()
        model(inputs)  # of which nothing is exchanged
        model.train()
        with torch.no_grad():
            model(inputs)
        model(inputs)  # whose backward never comes
        nn.functional.cross_entropy(model(inputs) + model(-inputs), labels).backward()
        optimizer.step()
        exchanges.append(handle.seen.step)
    handle.close()
    return exchanges


def test_a_step_is_one_exchange_whatever_goes_forward_before():
    assert run_ranks(2, accumulated) == [list(range(STEPS))] * 2


def resumed() -> tuple[list[float], list[float]]:
    mine = batches(dist.get_rank())
    model = distributed()
    handle = gradnet.attach(model, method="dgc")
    trained(model, mine[:3])
    kept = io.BytesIO()
    torch.save([model.module.state_dict(), handle.state_dict()], kept)
    whole = trained(model, mine[3:])
    handle.close()

    kept.seek(0)
    of_model, of_method = torch.load(kept, weights_only=True)
    again = distributed()
    again.module.load_state_dict(of_model)
    other = gradnet.attach(again, method="dgc")
    other.load_state_dict(of_method)
    seen = other.seen
    found = trained(again, mine[3:])
    other.close()
    assert seen.step == 2
    assert other.seen.step == STEPS - 1
    return whole.tolist(), found.tolist()


def test_training_goes_on_from_a_checkpoint_bit_for_bit():
    """DGC: its compressor and its controller have learnt something."""
    for whole, found in run_ranks(2, resumed):
        assert whole == found


def refusals() -> list[str]:
    def told(*given, model=None, **choices) -> str:
        with pytest.raises(BadSetting) as refused:
            gradnet.attach(model or distributed(), *given, **choices)
        return str(refused.value)

    return [
        told(model=a_model(), method="topk"),
        told(model=DistributedDataParallel(a_model().double()), method="topk"),
        told("steps=3"),
        told("network=netns"),
        told(method="topk", compressor="tpok"),
        told("controller.density=2", method="topk"),
        told(method="acp_sgd"),
        told(method="topk", overlap="per_tensor"),
        told(compressor="randomk", controller="dc2_da2"),
        told(controller="oracle", compressor="topk"),
        told(method="qsgd", error_feedback=3),
    ]


def test_what_cannot_be_is_refused_in_one_line():
    expected = [
        "model must be a torch.nn.parallel.DistributedDataParallel, got Sequential",
        "model's parameters must be float32, got ['torch.float64']",
        "a setting of gradnet.attach must be of seed, method, compressor",
        "a setting of gradnet.attach must be of seed, method, compressor",
        "compressor has no choice 'tpok'; nearest: topk",
        "controller: density must be in (0, 1], got 2",
        "fusion must be uncompressed with gradnet.attach, as buckets are DDP's, got",
        "overlap must be per_bucket or after_backward with gradnet.attach",
        "controller.agree must be min or mean with RandomK",
        "controller must be one that knows no profile",
        "error_feedback must be true or false, got 3",
    ]
    [told, _] = run_ranks(2, refusals)
    for each, start in zip(told, expected, strict=True):
        assert each.startswith(start), each
        assert "\n" not in each


def with_momentum() -> str:
    handle = gradnet.attach(model := distributed(), method="dgc")
    with pytest.raises(BadSetting) as refused:
        trained(model, batches(dist.get_rank()), momentum=0.9)
    handle.close()
    return str(refused.value)


def test_an_optimizer_does_not_do_again_what_the_compressor_does():
    told = "the optimizer's momentum must be 0 with dgc, which does its work, got 0.9"
    assert run_ranks(2, with_momentum) == [told, told]


def threads() -> list[int]:
    counts = [threading.active_count()]
    handle = gradnet.attach(model := distributed(), method="topk")
    trained(model, batches(dist.get_rank()))
    counts.append(threading.active_count())
    handle.close()
    return [*counts, threading.active_count()]


def test_threads_end_with_the_handle():
    for before, during, after in run_ranks(2, threads):
        assert before == after < during


def of_another() -> str:
    first = gradnet.attach(distributed(), method="topk")
    second = gradnet.attach(distributed(), method="qsgd")
    with pytest.raises(ValueError) as refused:
        second.load_state_dict(first.state_dict())
    first.close()
    second.close()
    return str(refused.value)


def test_a_state_is_of_its_method():
    [told, _] = run_ranks(2, of_another)
    assert told == "the state is of topk_0.01, and attached is qsgd"
