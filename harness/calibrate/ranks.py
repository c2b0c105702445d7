"""Ranks in the nodes of a shaped star, without torchrun, to measure links and collectives.

A program calls `enclosed()` first. It restarts itself in namespaces of its own, as a run does, and
leaves nothing behind. `on_ranks` then runs a function on every node.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from harness.config.backends import BETWEEN_CPUS
from harness.emulation import user_namespace
from harness.emulation.star import Star
from harness.records import environment
from profiles.base import Profile
from profiles.static import Static

TIMEOUT_S = 300
PORT = 29500


def enclosed() -> None:
    """Return only inside namespaces of our own. Outside, run this program there and exit."""
    if os.environ.get("GRADNET_ENCLOSED") == "1" and os.getpid() == 1:
        return
    inside = os.environ | environment.ALLOCATOR | {"GRADNET_ENCLOSED": "1"}
    command = user_namespace.command(sys.executable, *sys.argv)
    sys.exit(subprocess.run(command, env=inside).returncode)


def on_ranks(nodes: int, rate_mbit: float, function: Callable[..., Any], *arguments: Any) -> list:
    """Run `function(*arguments)` on one rank per node of a star at `rate_mbit`. Return by rank."""
    return on_ranks_of(Star(), nodes, Static(rate_mbit=rate_mbit), function, *arguments)


def on_ranks_of(
    star: Star, nodes: int, profile: Profile, function: Callable[..., Any], *arguments: Any
) -> list:
    """Run `on_ranks` on a given star, whose links follow `profile`."""
    with star.up(nodes, profile, 1.0) as network:
        pipes = []
        for node in range(nodes):
            reader, writer = os.pipe()
            with network.entered(node):
                pid = os.fork()
                if pid == 0:  # inside the block: leaving it would leave the namespace
                    os.close(reader)
                    _rank(node, nodes, network, writer, function, arguments)
            os.close(writer)
            pipes.append((reader, pid))
        return [_answer(reader, pid) for reader, pid in pipes]


def group_of_all() -> dist.ProcessGroup:
    """Return a new process group of all ranks."""
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)  # this rank belongs to it
    return group


def _rank(
    rank: int, size: int, network: Any, writer: int, function: Callable, arguments: tuple
) -> None:
    status = 1
    try:
        os.environ |= dict.fromkeys(BETWEEN_CPUS.variables, network.interface)
        os.environ |= {"MASTER_PORT": str(PORT)}
        os.environ |= {"MASTER_ADDR": network.addresses[0]}
        torch.set_num_threads(1)
        timeout = timedelta(seconds=TIMEOUT_S)
        dist.init_process_group(BETWEEN_CPUS.name, rank=rank, world_size=size, timeout=timeout)
        answer = function(*arguments)
        dist.barrier()
        os.write(writer, json.dumps(answer).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _answer(reader: int, pid: int) -> Any:
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("a rank failed")
    return json.loads(text)
