"""torchrun agents, one per emulated node, forked from one process that has imported torch."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch._dynamo  # noqa: F401  DDP imports it; once here saves every rank two seconds
import torchvision  # noqa: F401  likewise
from setproctitle import setproctitle
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, launch_agent

from harness.engine.training.worker import log_to, main
from harness.records.run_directory import Events
from harness.runner import store, transport


class Node(NamedTuple):
    """Place of one agent in the job."""

    number: int
    address: str
    interface: str


class Job(NamedTuple):
    """Settings that all agents of a run share."""

    run_dir: Path
    nodes: int
    workers_per_node: int
    first_address: str
    start_s: float  # deadline for the rendezvous
    arguments: tuple[Any, ...]  # of harness.engine.training.worker.main, after the run directory


def start_agent(node: Node, job: Job, entered: Callable) -> int:
    """Fork the torchrun agent of `node` inside its namespace; returns its process id.

    `entered` is a context manager that puts this thread into the node's network namespace.
    """
    with entered(node.number):
        pid = os.fork()
        if pid == 0:  # inside the block: leaving it would leave the namespace
            _run_agent(node, job)
    return pid


def _run_agent(node: Node, job: Job) -> None:
    """The agent's process: what `torchrun` does, then exit without coming back."""
    status = 1
    try:
        setproctitle(f"harness: torchrun agent of node {node.number}")
        log_to(job.run_dir / "logs" / f"node{node.number}.log")
        os.environ.update(transport.environment(node.interface))
        launch_agent(_config(node, job), _worker, [str(job.run_dir), *job.arguments])
        status = 0
    except ChildFailedError as error:
        for rank, failure in error.failures.items():
            Events(job.run_dir).append("worker_lost", rank=rank, exitcode=failure.exitcode)
    except BaseException as error:
        print(f"torchrun agent: {error!r}", file=sys.stderr)
        Events(job.run_dir).append("agent_failed", node=node.number, error=repr(error))
    finally:
        sys.stderr.flush()
        os._exit(status)


def _worker(*arguments: Any) -> None:
    setproctitle(f"harness: worker rank {os.environ['RANK']}")
    main(*arguments)


def _config(node: Node, job: Job) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=job.nodes,
        max_nodes=job.nodes,
        nproc_per_node=job.workers_per_node,
        run_id="run",  # equal on all machines; the rendezvous is of one run anyway
        rdzv_backend=store.BACKEND,
        rdzv_endpoint=f"{job.first_address}:{transport.PORT}",
        rdzv_configs={"rank": node.number, "timeout": job.start_s},
        local_addr=node.address,
        max_restarts=0,
        monitor_interval=0.05,
        start_method="fork",
        shutdown_timeout=1,
        logs_specs=DefaultLogsSpecs(log_dir=str(job.run_dir / "logs" / "agents")),
    )
