"""Replay sends what training would: the same buckets, in the same order."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness.engine.training.buckets import ddp_sizes
from harness.engine.training.course import without_data
from harness.engine.training.gradients import Replayed
from harness.workloads.buckets import bucket_names
from tests.ranks import run_ranks

BUCKET_MB = 2.0
WIDTHS = (300, 600, 500, 700, 400, 10)


def _model() -> nn.Module:
    pairs = zip(WIDTHS, WIDTHS[1:], strict=False)
    return nn.Sequential(*(nn.Linear(*pair) for pair in pairs))


def _ddp_buckets(bucket_mb) -> list[list[str]]:
    """Parameter names of DDP's buckets once it has laid them out for good."""
    model = _model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    ddp = DistributedDataParallel(model, **ddp_sizes(bucket_mb))
    steps: list[list[list[str]]] = []

    def hook(state, bucket):
        steps[-1].append([names[id(parameter)] for parameter in bucket.parameters()])
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, hook)
    for _ in range(3):
        steps.append([])
        ddp(torch.ones(4, WIDTHS[0])).sum().backward()
    dist.barrier()
    return steps[-1]


@pytest.mark.parametrize("bucket_mb", [None, BUCKET_MB, 0, (0.01, 1.3), (0.0041, 0.71)])
def test_replayed_buckets_are_those_of_ddp(bucket_mb):
    sizes = {name: parameter.numel() for name, parameter in _model().named_parameters()}
    ours = [set(bucket) for bucket in bucket_names(sizes, bucket_mb)]
    [theirs] = run_ranks(1, _ddp_buckets, bucket_mb)
    assert ours == [set(bucket) for bucket in theirs]
    assert len(ours) > 1


class Receives:
    """Stands for an exchange: notes the shapes that it is handed, and is done at once."""

    error, step = None, 0

    def __init__(self) -> None:
        self.shapes: dict[str, torch.Size] = {}
        self.whole = True
        self.lasts: list[bool] = []

    def submit(self, laid, last=False, pattern=None):
        buffer, names, gradients, _ = laid
        buffer.copy_(pattern)
        self.shapes |= {name: part.shape for name, part in zip(names, gradients, strict=True)}
        self.whole &= torch.equal(buffer, torch.cat([part.flatten() for part in gradients]))
        self.lasts.append(last)
        future = torch.futures.Future()
        future.set_result(buffer)
        return future


def test_replayed_gradients_have_the_shapes_of_the_parameters():
    """Low rank and row-wise compressors would send them whole as vectors."""
    parameters = dict(_model().to("meta").named_parameters())
    received = Receives()
    Replayed(parameters, without_data(1, steps=1), received, BUCKET_MB, seed=0).compute(0)
    shapes = {name: parameter.shape for name, parameter in parameters.items()}
    assert received.shapes == shapes and received.whole
    *before, last = received.lasts
    assert last and not any(before)


def test_every_parameter_is_in_one_bucket():
    sizes = {"a": 1 << 20, "b": 10, "c": 1 << 19, "d": 3}
    names = [name for bucket in bucket_names(sizes, 1.0) for name in bucket]
    assert sorted(names) == sorted(sizes)
    assert bucket_names(sizes, 0) == [("d",), ("c",), ("b",), ("a",)]
