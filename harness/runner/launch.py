"""torchrun agents, one per emulated node, forked from one process that has imported torch."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import torch._dynamo  # noqa: F401  DDP imports it; once here saves every rank two seconds
import torchvision  # noqa: F401  slow to import too
from setproctitle import setproctitle
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, launch_agent

from harness.clock import Clock
from harness.config.run import Run
from harness.emulation.network import Network
from harness.engine.training import worker
from harness.records.run_directory import Events
from harness.runner import limits, torch_network
from harness.runner.agents import Agents
from harness.workloads.buckets import largest_bucket_bytes

LEAST_TIMEOUT_S, PATIENCE = 60.0, 10  # of a collective; times its bucket at the lowest rate
OF_PEERS = (ConnectionError, TimeoutError)  # OSErrors that follow from another's end
OfRanks = tuple[Path, Run, Clock, float, worker.LocalRanks]  # arguments of worker.main


def start(run_dir: Path, run: Run, network: Network, clock: Clock) -> Agents:
    """Fork a torchrun agent into every node of this machine, and return the agents."""
    each = run.workers_per_node
    local = worker.LocalRanks(network.local[0] * each, len(network.local) * each)
    of_ranks = run_dir, run, clock, exchange_timeout_s(run), local
    agents = Agents(run_dir, local.local_world_size, network.check)
    for node in network.local:
        with network.entered(node):
            pid = os.fork()
            if pid == 0:  # inside the block: leaving it would leave the namespace
                _be_agent(node, network, of_ranks)
        agents.running[pid] = node
    return agents


def exchange_timeout_s(run: Run) -> float:
    """Return the real seconds that one collective may take, generous for slow peers."""
    if run.timeouts.exchange_s is not None:
        return run.timeouts.exchange_s
    shapes = {name: parameter.shape for name, parameter in run.shapes().named_parameters()}
    largest_bits = 8 * largest_bucket_bytes(shapes, run.bucket_mb)
    lowest_bits_per_s = 1e6 * run.profile.extremes().lowest_mbit / run.emulation.dilation
    return max(LEAST_TIMEOUT_S, PATIENCE * largest_bits / lowest_bits_per_s)


def _be_agent(node: int, network: Network, of_ranks: OfRanks) -> NoReturn:
    """Run the torchrun agent of `node` in this forked process, and exit. Never return.

    Confine the process, set its title, send its output to logs/node{node}.log, and set the
    network's environment. Launch the ranks of the node and wait for them. Exit with 0 if all
    succeed, else with 1. Append a `worker_lost` event for each failed rank, or `agent_failed` for
    any other error.
    """
    status, run_dir = 1, of_ranks[0]
    events = Events(run_dir)  # while there is a descriptor for it
    try:
        limits.confine()
        setproctitle(f"harness: torchrun agent of node {node}")
        worker.log_to(run_dir / "logs" / f"node{node}.log")
        os.environ.update(torch_network.environment(network.interface))
        launch_agent(_config(node, network, *of_ranks[:2]), worker.main, [*of_ranks])
        status = 0
    except ChildFailedError as error:
        for rank, failure in error.failures.items():
            events.append("worker_lost", rank=rank, exitcode=failure.exitcode)
    except BaseException as error:
        print(f"torchrun agent: {error!r}", file=sys.stderr)
        own = isinstance(error, OSError | MemoryError) and not isinstance(error, OF_PEERS)
        events.append("agent_failed", node=node, error=repr(error), own=own)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _config(node: int, network: Network, run_dir: Path, run: Run) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=network.size,
        max_nodes=network.size,
        nproc_per_node=run.workers_per_node,
        run_id="run",  # equal on all machines; the rendezvous is of one run anyway
        rdzv_backend=torch_network.BACKEND,
        rdzv_endpoint=f"{network.addresses[0]}:{torch_network.PORT}",
        rdzv_configs={"rank": node, "timeout": run.timeouts.start_s},
        local_addr=network.addresses[node],
        max_restarts=0,
        monitor_interval=0.05,
        start_method="fork",
        shutdown_timeout=1,
        logs_specs=DefaultLogsSpecs(log_dir=str(run_dir / "logs" / "agents")),
    )
