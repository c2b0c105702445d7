"""Buckets filled by what is sent: as many, and as large, as the paper has; and nothing else new."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Size
from torch.futures import Future

from compressors.acp_sgd import ACPSGD
from harness.config.settings import BadSetting
from harness.engine.training.buckets import Buckets
from harness.engine.training.replica import Collector
from harness.workloads.fusion import FLOAT_BYTES, MIB, Fusion
from tests.ranks import run_ranks
from tests.test_settings import settings
from tests.virtual.runs import DETERMINED, prepare, rank, settings_of, simulated, weights

SHAPES = {
    "a": Size((8, 4)),  # P: 2 x 8, Q: 2 x 4
    "b": Size((8,)),
    "c": Size((4, 2, 2)),  # as [4, 4]
    "d": Size((2,)),
}  # 58 elements; in P's turn 16 + 8 + 8 + 2 = 34 are sent, in Q's 8 + 8 + 8 + 2 = 26
RUN = (
    "method=acp_sgd", "bucket_mb=0.01", "steps=4", "model.width=16", "batch_size=8",
    "compressor.rank=2", "emulation.compute=paced",
)  # fmt: skip
SEVERAL = 6  # of both kinds of buffers, at least


def fusion(elements: float) -> Fusion:
    """Buckets of so many elements of gradients."""
    return Fusion(elements * FLOAT_BYTES / MIB, ACPSGD(rank=2).elements)


@pytest.mark.parametrize(("elements", "of_p", "of_q"), [
    (0, ["d", "c", "b", "a"], ["d", "c", "b", "a"]),
    (58 / 34 * 17.9, ["dc", "b", "a"], ["dc", "b", "a"]),  # of P; 13.7 of Q
    (58 / 34 * 18.1, ["dcb", "a"], ["dc", "b", "a"]),
    (58 / 26 * 16.1, ["dcb", "a"], ["dc", "ba"]),
    (58, ["dcba"], ["dcba"]),
])  # fmt: skip
def test_a_buffer_takes_the_next_factor_if_it_fits_p_and_q_apart(elements, of_p, of_q):
    for step, expected in enumerate([of_p, of_q, of_p]):
        assert ["".join(names) for names in fusion(elements).names(SHAPES, step)] == expected


def test_resnet_50_has_four_buffers_of_p_and_four_of_q_as_published():
    """25 MiB times 0.63 / 97.5 and 1.04 / 97.5 MiB, at rank 4."""
    with torch.device("meta"):
        model = settings("model=resnet50").build("model").build((3, 224, 224), 1000)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    found, elements = Fusion(25.0, ACPSGD().elements), ACPSGD().elements
    for step, whole_mb in ((0, 0.63), (1, 1.04)):
        sent = {name: elements(shape, step) * FLOAT_BYTES / MIB for name, shape in shapes.items()}
        assert sum(sent.values()) == pytest.approx(whole_mb, abs=0.005)
        assert len(found.names(shapes, step)) == 4


def test_buckets_of_any_exchange_are_in_one_memory_and_have_each_tensor_once():
    parameters = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    buckets = Buckets(parameters, fusion(58 / 26 * 16))
    [whole] = buckets.laid
    for step in (0, 1):
        laid = buckets.at(step)
        assert sum((each.names for each in laid), ()) == whole.names == ("d", "c", "b", "a")
        whole.buffer.copy_(torch.arange(58))
        assert torch.equal(torch.cat([each.buffer for each in laid]), whole.buffer)
        for each in laid:
            assert torch.equal(torch.cat([g.flatten() for g in each.gradients]), each.buffer)
            assert [g.shape for g in each.gradients] == [SHAPES[name] for name in each.names]


def buffers(*asked: str) -> list[int]:
    """How many a step has, step by step, of the model's shapes."""
    run = settings_of(*asked).run()
    shapes = {name: parameter.shape for name, parameter in run.shapes().named_parameters()}
    return [len(run.bucket_mb.names(shapes, step)) for step in range(4)]


def sent(run: Path) -> list[int]:
    steps = pd.read_csv(run / "steps.csv")
    return steps[steps["rank"] == 0].sort_values("step").sent_bytes.tolist()


PIPELINE = ("parallel=pipeline", "parallel.stages=2", "model=mlp")


@pytest.mark.parametrize(("workers", "more"), [(2, ()), (3, ()), (2, PIPELINE)])
def test_fused_or_not_the_same_values_are_added_up(tmp_path, workers, more):
    """Of two workers to the bit; of three in an order that follows from where in a buffer a value
    is."""
    ranks = workers * (2 if more else 1)
    asked = (*[a for a in RUN if not more or ".width" not in a], f"workers={ranks}", *more)
    own, other = (
        simulated(tmp_path / how, *asked, *DETERMINED, f"fusion={how}")
        for how in ("compressed", "uncompressed")
    )
    expected = weights(other)
    for name, value in weights(own).items():
        if workers == 2:
            assert torch.equal(value, expected[name]), name
        else:
            torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4)
    assert sent(own) == pytest.approx(sent(other), abs=4 * ranks * SEVERAL)  # a ring cuts evenly


def test_in_virtual_time_a_step_has_an_all_reduce_for_each_buffer(tmp_path):
    expected = buffers(*RUN)
    assert min(expected) >= SEVERAL and expected[0] != expected[1]
    run = simulated(tmp_path, *RUN, "workers=2", "network.timeline_steps=4", *DETERMINED)
    spans = pd.read_csv(run / "timeline.csv")
    calls = spans[(spans["rank"] == 0) & (spans.kind == "communicate")].groupby("step").size()
    assert calls.tolist() == expected


@pytest.mark.parametrize("more", ["emulation.compute=paced", "emulation.compute=replay"])
def test_over_packets_too_and_the_weights_are_those_of_virtual_time(tmp_path, more):
    asked = (*RUN, "workers=3", more, "overlap=per_bucket")
    found = settings_of(*asked)
    prepare(tmp_path / "real", found)
    for collectives in run_ranks(3, rank, tmp_path / "real", found.run()):
        assert len(collectives) == sum(buffers(*asked))
    virtual = simulated(tmp_path / "virtual", *asked, *DETERMINED)
    assert sent(tmp_path / "real") == sent(virtual)
    if "replay" not in more:
        expected = weights(virtual)
        for name, value in weights(tmp_path / "real").items():
            assert torch.equal(value, expected[name]), name


class Failing:
    """An exchange of which nothing comes."""

    step, names = 0, dict[int, str]()

    def submit(self, laid, last):
        future = Future()
        future.set_exception(ValueError("torn"))
        return future


class HandedOver:
    """A bucket of DDP, of one parameter."""

    def __init__(self, parameter):
        self.parameter = parameter

    def parameters(self):
        return [self.parameter]

    def buffer(self):
        return self.parameter.flatten()


def test_what_fails_fails_for_every_tensor_of_its_buffer():
    parameters = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    exchange = Failing()
    exchange.names = {id(parameter): name for name, parameter in parameters.items()}
    collector = Collector(Buckets(parameters, fusion(58)), exchange)
    futures = [collector.hook(None, HandedOver(each)) for each in reversed(parameters.values())]
    for future in futures:
        with pytest.raises(ValueError, match="torn"):
            future.wait()


@pytest.mark.parametrize(("asked", "why"), [
    ("method=topk", "TopK, which does not say what it makes of a tensor"),
    ("method=powersgd", "PowerSGD, which does not say what it makes of a tensor"),
    ("method=acp_sgd compressor.rank=null", "ACPSGD, whose rank follows from a density"),
])  # fmt: skip
def test_what_cannot_be_known_before_is_refused(asked, why):
    with pytest.raises(BadSetting, match=f"fusion must be uncompressed with {why}, got 'compress"):
        settings_of(*asked.split(), "fusion=compressed")
