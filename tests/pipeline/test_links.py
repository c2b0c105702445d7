"""A link over gloo: what one side sends the other has, and a silent neighbour is an error."""

from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from compressors.activations.dct_mp import DCTMP
from harness.clock import Clock
from harness.engine.pipeline.channel import GroupChannel
from harness.engine.pipeline.stage_io import Inlet, Outlet
from harness.engine.training.rank_context import single_thread_executor
from tests.ranks import run_ranks

SHAPE = torch.Size((4, 10))


def _end(timeout_s: float) -> Inlet | Outlet:
    """Of a cut between ranks 0 and 1."""
    rank = dist.get_rank()
    group = dist.new_group(timeout=timedelta(seconds=timeout_s))
    kind = Inlet if rank else Outlet
    channel, executor = GroupChannel(group, 1 - rank, "stage X"), single_thread_executor
    return kind(channel, DCTMP(0.2), SHAPE, Clock(), executor)


def _batch(samples: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(samples)
    return torch.randn(samples, *SHAPE, generator=source)


def _both_ways(sizes: list[int]) -> list[np.ndarray]:
    """Rank 1: what arrived. Rank 0: the gradients of what it sent; they are twice what arrived."""
    end = _end(60)
    if isinstance(end, Outlet):
        leaves = [_batch(samples).requires_grad_() for samples in sizes]
        sent = [end.send(leaf * 1.0) for leaf in leaves]
        for leaf, sending in zip(leaves, sent, strict=True):
            (leaf * 1.0).backward(end.returned(sending).value)
        found = [leaf.grad for leaf in leaves]
    else:
        for samples in sizes:
            end.expect(samples, True)
        arrivals = [end.receive() for _ in sizes]
        for arrival in arrivals:
            end.send_back(arrival, 2 * arrival.inputs.detach())
        found = [arrival.inputs.detach() for arrival in arrivals]
    end.flush()
    end.close()
    assert end.channel.sent_bytes > 0 and end.channel.received_bytes > 0
    return [each.numpy() for each in found]  # a process that ends takes its tensors with it


def test_micro_batches_of_any_size_cross_and_their_gradients_come_back() -> None:
    sizes = [3, 1, 5, 3]
    grads, arrived = run_ranks(2, _both_ways, sizes)
    for samples, *both in zip(sizes, grads, arrived, strict=True):
        x, (grad, rows) = _batch(samples), map(torch.from_numpy, both)
        assert torch.equal(rows, torch.where(rows != 0, x, 0.0))
        assert (rows.flatten(1) != 0).sum(1).tolist() == [8] * samples
        assert torch.equal(grad, 2 * rows)


def _wait_for_nothing() -> str:
    end = _end(2)
    if isinstance(end, Inlet):
        end.expect(4, True)
        with pytest.raises(RuntimeError) as failure:
            end.receive()
        end.close()
        return str(failure.value)
    return ""


def test_a_silent_neighbour_is_an_error_after_the_timeout() -> None:
    _, said = run_ranks(2, _wait_for_nothing)
    assert "nothing came from stage X: " in said and "Timed out waiting" in said
