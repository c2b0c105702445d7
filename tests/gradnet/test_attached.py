"""`gradnet.attach`: DDP trains as before, but for what its method leaves out."""

import io
import threading
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from controllers.base import Observation
from harness.clock import Clock
from harness.config.typed import BadSetting
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Workers
from harness.engine.training.build import reduction_of
from harness.engine.training.pace import MeasuredPace
from harness.engine.training.replica import Distributed
from harness.engine.training.train import Loop
from harness.records.run_directory import Table
from tests.ranks import run_ranks

STEPS, BATCH, CLASSES = 6, 8, 10
LR = 0.5
DENSITY = 0.1
NOT_OF_EVERY_STEP = (
    "diloco", "localsgd", "noloco", "diloco_streaming", "sparseloco",
    "hogwild", "dct_ps", "dct_ps_async", "dct_hogwild",
)  # fmt: skip


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


@dataclass
class InALoop:
    """Gradients of the same model on the same batches, as a loop of the harness asks for them."""

    replica: Distributed
    exchange: Exchange

    def __post_init__(self) -> None:
        self.course = SimpleNamespace(samples=BATCH)
        self.batches = batches(dist.get_rank())
        self.optimizer = torch.optim.SGD(self.replica.model.parameters(), LR)

    def compute(self, step: int) -> float:
        inputs, labels = self.batches[step]
        loss = nn.functional.cross_entropy(self.replica.model(inputs), labels)
        self.exchange.begin_backward()
        self.replica.backward(loss)
        return loss.item()

    def update(self, step: int) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def in_both(folder: Path) -> tuple[list[float], list[float], Observation, Observation]:
    (folder / str(dist.get_rank())).mkdir()
    model = distributed()
    handle = gradnet.attach(model, method="accordion")
    found = trained(model, batches(dist.get_rank()))
    handle.close()

    workers, clock, whole = (
        Workers(dist.new_group(backend="gloo"), found.device),
        Clock(),
        a_model(),
    )
    names = {id(each): name for name, each in whole.named_parameters()}
    exchange = Exchange(reduction_of(handle.run, workers), workers, clock, names, shares={})
    gradients = InALoop(Distributed(whole, exchange, 25), exchange)
    gradients.replica.settle(lambda model, some: model(some).sum().backward(), torch.zeros(2, 20))
    clock.start()
    loop = Loop(rank=dist.get_rank(), first=0, steps=range(STEPS),
                table=Table(folder / str(dist.get_rank()), "steps.csv"), gradients=gradients,
                exchange=exchange, pace=MeasuredPace(), clock=clock, begin=clock.now,
                rest=lambda done, seen: None)  # fmt: skip
    loop.run()
    exchange.close()
    assert handle.seen is not None
    return found.tolist(), weights(whole).tolist(), handle.seen, loop.seen


def test_a_step_is_what_it_is_in_a_loop_of_the_harness_bit_for_bit(tmp_path: Path) -> None:
    """Accordion's densities follow from gradients, not from times."""
    for found, ours, seen, loops in run_ranks(2, in_both, tmp_path):
        assert found == ours
        for name in ("step", "density", "sent_bytes", "received_bytes", "dense_bytes", "workers"):
            assert getattr(seen, name) == getattr(loops, name), name


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

    return [told(model=a_model(), method="topk"), told("steps=3"), told("network=netns"),
            told(method="topk", compressor="tpok"), told("controller.density=2", method="topk"),
            told(method="acp_sgd"), told(method="topk", overlap="per_tensor"),
            told(compressor="randomk", controller="dc2_da2"),
            told(controller="oracle", compressor="topk"), told(method="qsgd", error_feedback=3),
            *(told(method=method) for method in NOT_OF_EVERY_STEP),
            told(method="dct_hybrid")]  # fmt: skip


def test_what_cannot_be_is_refused_in_one_line():
    expected = [
        "model must be a torch.nn.parallel.DistributedDataParallel, got Sequential",
        "a setting of gradnet.attach must be of seed, method, compressor",
        "a setting of gradnet.attach must be of seed, method, compressor",
        "compressor has no choice 'tpok'; nearest: topk",
        "controller: density must be in (0, 1], got 2",
        "fusion must be uncompressed with gradnet.attach, as buckets are DDP's, got",
        "overlap must be one of per_bucket, after_backward, got",
        "controller.agree must be min or mean with RandomK",
        "controller must be one that knows no profile",
        "error_feedback must be true or false, got 3",
        *(
            "method must be one that exchanges gradients in every step (parallel=data) with "
            f"gradnet.attach, got '{method}"
            for method in NOT_OF_EVERY_STEP
        ),
        "activations must be dense with parallel=data, where the model has no cuts, got DCTMP",
    ]
    [told, _] = run_ranks(2, refusals)
    for each, start in zip(told, expected, strict=True):
        assert each.startswith(start), each
        assert "\n" not in each


def with_momentum() -> list[str]:
    messages = []
    for choices in ({"method": "dgc"}, {"compressor": "dgc"}):
        handle = gradnet.attach(model := distributed(), **choices)
        with pytest.raises(BadSetting) as refused:
            trained(model, batches(dist.get_rank()), momentum=0.9)
        messages.append(str(refused.value))
        inputs, labels = batches(dist.get_rank())[0]
        nn.functional.cross_entropy(model(inputs), labels).backward()
        with pytest.raises(BadSetting) as refused:
            torch.optim.Adam(model.parameters()).step()
        messages.append(str(refused.value))
        handle.close()
    return messages


def test_an_optimizer_does_not_do_again_what_the_compressor_does():
    """The optimizer is the script's, so only its own momentum counts, however dgc was chosen."""
    [messages, others] = run_ranks(2, with_momentum)
    assert messages == others
    starts = [message.partition(" with ")[0] for message in messages]
    assert starts == ["the optimizer's momentum must be 0"] * 4
    assert all(message.endswith("which does its work, got 0.9") for message in messages)


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


class Wrapper(nn.Module):
    """A model inside another, as a wrapper of one's own or DDP has it."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, module)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.get_submodule(self.name)(inputs)


def loaded_by_another(kind: str) -> tuple[str, list[float], list[float]]:
    """What a refusal says, and weights of one that went on and of one with another model."""
    mine = batches(dist.get_rank())
    handle = gradnet.attach(model := distributed(), method="topk")
    trained(model, mine[:3])
    kept, values = deepcopy([handle.state_dict(), list(model.parameters())])
    whole = trained(model, mine[3:])
    handle.close()
    inner = a_model()
    if kind == "_orig_mod":
        inner = torch.compile(inner, backend="eager")
    elif kind:
        inner = Wrapper(inner, kind)
    again = DistributedDataParallel(inner)
    for parameter, value in zip(again.parameters(), values, strict=True):
        parameter.data.copy_(value.data)
    other = gradnet.attach(again, method="topk")
    told = ""
    try:
        other.load_state_dict(kept)
    except ValueError as refusal:
        told = str(refusal)
    found = trained(again, mine[3:])
    other.close()
    return told, whole.tolist(), found.tolist()


@pytest.mark.parametrize("kind", ["", "_orig_mod", "module"])
def test_a_state_is_of_the_model_however_it_is_wrapped(kind):
    for told, whole, found in run_ranks(2, loaded_by_another, kind):
        assert told == "" and whole == found


def test_a_state_of_other_parameters_is_refused_by_their_names():
    for told, _, found in run_ranks(2, loaded_by_another, "net"):
        assert told.startswith("feedback._buckets is of a parameter '2.bias', which the model has")
        assert "its first is 'net.0.weight'" in told and "\n" not in told
        assert all(map(isfinite, found))  # nothing of the state was taken


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
