"""Leaving with work still in flight: no abort, no hang, launch after launch."""

import multiprocessing
import os

import pytest
import torch
import torch._dynamo  # noqa: F401  before the fork
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from compressors.dense import Dense
from controllers.fixed import Fixed
from harness.clock import Clock
from harness.engine.exchange.bucket_lanes import Exchange
from harness.engine.exchange.collectives import Workers
from harness.engine.exchange.feedback import NoFeedback
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.engine.training import worker
from tests.ranks import free_port

AT_ONCE = 2
DEADLINE_S = 60


class Held:
    """As much of a training loop as leaving needs: it owns the exchange and DDP."""

    def close(self) -> None:
        self.exchange.close()


def _leave_busy(rank: int, port: int) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    group = dist.new_group()
    model = nn.Linear(64, 64)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    clock = Clock()
    clock.start()
    held = Held()
    workers = Workers(group)
    reduction = Reduction(Dense(), Fixed(1.0), "local", NoFeedback(), workers)
    held.exchange = Exchange(reduction, workers, clock, names, {"a": 1.0})
    held.ddp = DistributedDataParallel(model)
    held.exchange.begin(None)
    for _ in range(8):  # nobody waits for these
        gradient = torch.ones(1 << 18)
        held.exchange.submit(BucketBuffers(gradient, ("a",), [gradient]))
    worker.leave(held, [group])


@pytest.mark.launch
@pytest.mark.parametrize("launches", [20, pytest.param(100, marks=pytest.mark.faults)])
def test_launches_end_well_with_work_in_flight(launches):
    context = multiprocessing.get_context("fork")
    for _ in range(launches // AT_ONCE):
        ranks = []
        for _ in range(AT_ONCE):
            port = free_port()
            ranks += [context.Process(target=_leave_busy, args=(n, port)) for n in range(2)]
            for process in ranks[-2:]:
                process.start()
        for process in ranks:
            process.join(DEADLINE_S)
            assert process.exitcode == 0, "hung" if process.exitcode is None else process.exitcode
