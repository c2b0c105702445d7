"""Replay sends what training would: the same buckets, in the same order."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness.gradients import bucket_names
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
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
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


@pytest.mark.parametrize("bucket_mb", [None, BUCKET_MB, 0])
def test_replayed_buckets_are_those_of_ddp(bucket_mb):
    sizes = {name: parameter.numel() for name, parameter in _model().named_parameters()}
    ours = [set(bucket) for bucket in bucket_names(sizes, bucket_mb)]
    [theirs] = run_ranks(1, _ddp_buckets, bucket_mb)
    assert ours == [set(bucket) for bucket in theirs]
    assert len(ours) > 1


def test_every_parameter_is_in_one_bucket():
    sizes = {"a": 1 << 20, "b": 10, "c": 1 << 19, "d": 3}
    names = [name for bucket in bucket_names(sizes, 1.0) for name in bucket]
    assert sorted(names) == sorted(sizes)
    assert bucket_names(sizes, 0) == [("d",), ("c",), ("b",), ("a",)]
