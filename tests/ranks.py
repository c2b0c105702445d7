"""Runs a function in several real processes joined by gloo on the loopback interface."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any

import torch
import torch._dynamo  # noqa: F401  DDP imports it; here once, before the fork
import torch.distributed as dist

from compressors import kernels

TIMEOUT_S = 60


def run_ranks(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(*arguments)` at every rank of a gloo group of `size`; results by rank."""
    kernels.path()  # loaded here once, not by every rank
    context = multiprocessing.get_context("fork")
    port = free_port()
    results = context.SimpleQueue()
    ranks = [
        context.Process(target=_rank, args=(rank, size, port, function, arguments, results))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    answers = {}
    for _ in ranks:
        while results.empty():
            ended = [process.exitcode for process in ranks if process.exitcode]
            assert not ended, f"a rank ended without an answer, by exit code {ended[0]}"
            alive = [process.sentinel for process in ranks if process.is_alive()]
            assert alive, "all ranks ended, and one without an answer"
            wait([results._reader, *alive])
        rank, good, answer = results.get()
        if not good:
            for process in ranks:
                process.kill()
            raise AssertionError(f"rank {rank} failed:\n{answer}")
        answers[rank] = answer
    for process in ranks:
        process.join(TIMEOUT_S)
        assert process.exitcode == 0
    return [answers[rank] for rank in range(size)]


def _rank(
    rank: int, size: int, port: int, function: Callable[..., Any], arguments: tuple, results: Any
) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    try:
        timeout = timedelta(seconds=TIMEOUT_S)
        dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timeout)
        answer = function(*arguments)
        dist.barrier()
        results.put((rank, True, answer))
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, False, traceback.format_exc()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
