"""Predict one iteration of a method on a testbed by replaying its steps in virtual time."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from statistics import fmean
from typing import Any, Literal, NamedTuple

from controllers.fixed import Fixed
from harness.config import scales
from harness.config.run import Run
from harness.config.typed import located
from harness.fidelity.bench import Cluster, Compute, Cost
from harness.fidelity.layers import Layers
from harness.fidelity.replay_cache import kept
from harness.predict import plan
from harness.virtual.costs import Costs
from harness.virtual.network import Simulated
from harness.workloads.models.base import Times
from profiles.static import Static

ALL_MB = 1e6  # all tensors in one bucket
FOREVER_S = 3600.0  # update period of a network that does not change
ASKED = ("network=simulated", "dataset=synthetic", "emulation.compute=replay", "network.alike=true",
         f"network.update_s={FOREVER_S}", f"network.sample_s={FOREVER_S}", "steps=1",
         "network.timeline_steps=0", "network.repeat=0", "network.operation_s=0")  # fmt: skip


class ReplayJob(NamedTuple):
    """A model, its computation time, and the cluster to replay it on."""

    model: str
    compute: Compute
    cluster: Cluster
    classes: int | None = None


class ReplayedMethod(NamedTuple):
    """A compressor to replay, with its settings, density and cost."""

    target: str  # its class, in compressors/
    fields: tuple[tuple[str, Any], ...] = ()
    density: float = 1.0
    cost: Cost = ()
    overlap: Literal["per_bucket", "after_backward"] = "per_bucket"
    bucket_mb: float | None = None  # None: DDP's default
    fusion: Literal["uncompressed", "compressed"] = "uncompressed"
    hooks: Literal["wait"] | None = None  # None: the compressor's default
    interference: float = 1.0  # slowdown of compression in hooks
    turn: int = 1  # steps in a cycle of the method
    part: int = 1  # keep 1 / part of each tensor, and slow links alike


class Iteration(NamedTuple):
    """Predicted seconds of one iteration and its parts; no other work hides `exposed_s`."""

    total_s: float
    compute_s: float
    compress_s: float
    comm_s: float

    @property
    def exposed_s(self) -> float:
        return self.total_s - self.compute_s - self.compress_s


def iteration(job: ReplayJob, method: ReplayedMethod) -> Iteration:
    """Return the mean iteration over one full cycle (`method.turn` steps) of the method."""
    return Iteration(*(fmean(column) for column in zip(*steps(job, method), strict=True)))


@cache
def steps(job: ReplayJob, method: ReplayedMethod) -> Sequence[Iteration]:
    """Return each step of one cycle, cached; the first replayed step is dropped as warm-up."""
    question = f"{job} {method} {json.dumps(_base().deciding)}"
    return [Iteration(*row) for row in kept(question, partial(_replayed, job, method))]


def _replayed(job: ReplayJob, method: ReplayedMethod) -> list[Iteration]:
    _, rows = plan.replay(_run(job, method))
    rows = rows[rows["rank"] == 0].sort_values("step")
    took_s = rows.time_s.diff()[1:]
    compute_s = job.compute.forward_s + job.compute.backward_s
    parts = zip(took_s, rows.compress_s[1:], rows.comm_s[1:], strict=True)
    return [Iteration(*map(float, (total, compute_s, *of))) for total, *of in parts]


def all_reduce_s(cluster: Cluster, nbytes: float) -> float:
    """Return the seconds of one all-reduce of `nbytes` on an otherwise idle network."""
    return float(_costs(cluster).all_reduce(0.0, round(nbytes), cluster.workers))


@cache
def _costs(cluster: Cluster) -> Costs:
    run = _on(cluster)
    return _network(run).costs(run.profile, run.nodes, run.workers_per_node)


def _run(job: ReplayJob, method: ReplayedMethod) -> Run:
    run = _on(job.cluster._replace(rate_mbit=job.cluster.rate_mbit / method.part))
    cost = dict(method.cost)
    for name in ("element_ns", "rank_ns"):
        cost[name] = method.part * cost.get(name, 0.0)
    forward_s, backward_s, where = job.compute.forward_s, job.compute.backward_s, "of the testbed"
    times = Times(forward_s, backward_s, run.batch_size, where, where)
    compressor = located(f"compressors.{method.target}")
    lanes = replace(run.emulation, hooks=method.hooks, interference=method.interference)
    return replace(
        run,
        network=replace(_network(run), device={"costs": {"other": cost}}),
        model=Layers(job.model, times, job.classes, method.part),
        times=times,
        compressor=partial(compressor, **dict(method.fields)),
        controller=partial(Fixed, method.density),
        emulation=lanes,
        overlap=method.overlap,
        full_bucket_mb=method.bucket_mb,
        fusion=method.fusion,
        steps=1 + method.turn,
    )


def _on(cluster: Cluster) -> Run:
    """Return a run on this cluster; it has no model of its own yet."""
    run, shared = _base(), min(cluster.workers, cluster.per_node)
    told = {"efficiency": cluster.efficiency, "alpha_s": cluster.alpha_s, **dict(cluster.settings)}
    if isinstance(told.get("efficiencies"), tuple):
        told["efficiencies"] = dict(told["efficiencies"])
    return replace(
        run,
        workers=cluster.workers,
        workers_per_node=shared,
        profile=Static(cluster.rate_mbit),
        network=replace(_network(run), **told),
    )


def _network(run: Run) -> Simulated:
    assert isinstance(run.network, Simulated)
    return run.network


@cache
def _base() -> Run:
    return scales.compose(ASKED)[0].run()
