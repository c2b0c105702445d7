"""Laws of an exchange in two levels: a sum inside every node, then an exchange between nodes."""

import json
from functools import partial

import pandas as pd
import pytest
import torch
from torch import Size, Tensor

from controllers.fixed import Fixed
from harness.config.typed import BadSetting
from harness.engine.exchange.feedback import NoFeedback, Residual
from harness.engine.exchange.levels import TwoLevelReduction
from harness.engine.exchange.reduction import BucketBuffers, Reduction
from harness.records.run_directory import read_events
from harness.virtual.levels import TwoLevelSimulatedWorkers, between_nodes
from harness.virtual.workers import SimulatedWorkers
from profiles.static import Static
from tests.compressors.reductions import build
from tests.virtual.runs import DETERMINED, over_gloo, settings_of, simulated, weights
from tests.virtual.threads import costs_of, together

SHAPES = {"matrix": (90, 40), "bias": (33,), "kernel": (8, 3, 3, 3), "scale": (1,)}
ROUNDING = 2.0**-23  # of one float32 operation, relative to the largest term
TWO = ("parallel.levels=2", "workers=4", "workers_per_node=2", "bucket_mb=0.02")
TOPK = ("method=topk", "controller.density=0.1")
METHODS = {
    "dense": ("method=allreduce",),
    "topk": TOPK,
    "int8": ("compressor=int8",),
    "dgc": ("method=dgc", "controller.density=0.1"),
    "agreed": ("method=topk", "controller=dc2_da2", "controller.agree=mean"),
}
FLAT = ["bf16", "carried_topk", "covap", "dct_dp", "dense", "dgc", "ef_signsgd", "fp16", "int4"]
FLAT += ["int8", "lgreco", "mstopk", "netsense", "oktopk", "onebit", "qsgd", "randomk"]
FLAT += ["sampled_topk", "signsgd", "terngrad", "threshold_topk", "topk"]


def laid(rank: int, step: int = 0, shapes: dict[str, tuple[int, ...]] = SHAPES) -> BucketBuffers:
    sizes = [Size(shape).numel() for shape in shapes.values()]
    noise = torch.Generator().manual_seed(100 * step + rank)
    buffer = torch.randn(sum(sizes), generator=noise)
    parts = zip(buffer.split(sizes), shapes.values(), strict=True)
    return BucketBuffers(buffer, tuple(shapes), [part.view(shape) for part, shape in parts])


def reduction(workers: SimulatedWorkers, variant: str = "dense") -> Reduction:
    compressor = build(variant)
    feedback = NoFeedback() if "error_feedback" in compressor.replaces else Residual()
    kind = TwoLevelReduction if workers.levels else Reduction
    return kind(compressor, Fixed(0.1), "local", feedback, workers)


def reduced(workers: SimulatedWorkers, variant: str = "dense", **shapes: tuple[int, ...]) -> Tensor:
    ours = reduction(workers, variant)
    ours.open(None)
    bucket = laid(workers.rank, shapes=shapes or SHAPES)
    ours.reduce_bucket(0, 0, bucket)
    return bucket.buffer


def in_levels(nodes: int, own: int, work, **asked):
    """Results of `work` on all workers of `nodes` nodes with `own` workers each."""
    costs = between_nodes(costs_of(Static(rate_mbit=8.0), nodes, own))
    kind = partial(TwoLevelSimulatedWorkers, workers_per_node=own)
    return together(nodes * own, partial(work, **asked), costs, kind)


@pytest.mark.parametrize("nodes, own", [(2, 2), (2, 4), (3, 2), (3, 3), (1, 2), (4, 1)])
def test_two_dense_levels_are_the_mean_of_all_workers(nodes, own):
    size = nodes * own
    means = in_levels(nodes, own, reduced)
    assert all(torch.equal(mean, means[0]) for mean in means)
    gradients = torch.stack([laid(rank).buffer for rank in range(size)])
    errors = (means[0] - gradients.double().mean(0)).abs()
    assert float(errors.max()) <= size * ROUNDING * float(gradients.abs().max())
    if own == 1 or (nodes, own) == (1, 2):  # the same additions in the same order
        assert torch.equal(means[0], together(size, reduced)[0])


@pytest.mark.parametrize("n", range(1, 10))
def test_a_bucket_may_have_fewer_elements_than_a_node_has_workers(n):
    means = in_levels(2, 4, reduced, variant="topk", few=(n,))
    assert all(torch.equal(mean, means[0]) for mean in means)


@pytest.mark.parametrize("variant", FLAT)
def test_what_was_not_sent_is_in_the_residuals_of_the_shards(variant):
    """Over steps the means and the residuals, averaged over nodes, add up to all gradients."""
    nodes, own, steps = 2, 2, 4

    def work(workers: TwoLevelSimulatedWorkers) -> tuple[Tensor, Tensor | None]:
        ours, total = reduction(workers, variant), torch.zeros(laid(0).buffer.numel())
        for step in range(steps):
            ours.open(None)
            bucket = laid(workers.rank, step)
            ours.reduce_bucket(step, 0, bucket)
            total += bucket.buffer
        if not isinstance(ours.feedback, Residual):
            return total, None
        left = ours.feedback.by_parameter()
        assert [each.numel() for each in left.values()] == [b - a for a, b in ours.slices.values()]
        return total, torch.cat(list(left.values()))

    totals, residuals = zip(*in_levels(nodes, own, work), strict=True)
    assert all(torch.equal(total, totals[0]) for total in totals)
    if residuals[0] is None or not build(variant).is_mean:
        return
    left = sum(torch.cat(residuals[own * node : own * (node + 1)]) for node in range(nodes)) / nodes
    everything = [laid(rank, step).buffer for rank in range(nodes * own) for step in range(steps)]
    expected = torch.stack(everything).double().sum(0) / (nodes * own)
    allowed = steps * nodes * own * build(variant).rounding * float(torch.stack(everything).max())
    assert float((totals[0] + left - expected).abs().max()) <= max(allowed, 1e-5)


@pytest.mark.parametrize("nodes, own", [(2, 2), (2, 4), (4, 2)])
@pytest.mark.parametrize("variant, law", [
    ("dense", lambda n, nodes: 2 * (nodes - 1) / nodes * 4 * n),
    ("topk", lambda n, nodes: 2 * 0.1 * (nodes - 1) * 4 * n),
    ("int8", lambda n, nodes: 2 * (nodes - 1) / nodes * (n + 4 * n / 256)),
])  # fmt: skip
def test_bytes_of_a_node_are_those_of_one_worker_per_node(nodes, own, variant, law):
    def sent(workers: TwoLevelSimulatedWorkers) -> tuple[int, int]:
        reduced(workers, variant, large=(1 << 18,))
        return workers.sent_bytes, workers.inside_bytes

    counted, n = in_levels(nodes, own, sent), 1 << 18
    for node in range(nodes):
        of_node = sum(between for between, _ in counted[own * node : own * (node + 1)])
        assert of_node == pytest.approx(law(n, nodes), rel=0.005)
    assert {inside for _, inside in counted} == {2 * (own - 1) * 4 * n // own}


@pytest.mark.parametrize("method", METHODS)
def test_packets_and_virtual_time_train_the_same_weights(method, tmp_path):
    """And a resumed run has the bits of a run without a break, and links carry what ranks count."""
    asked = (*TWO, *DETERMINED, *METHODS[method], "network.efficiency=1", "checkpoint_every=4")
    whole = simulated(tmp_path / "virtual", *asked, "steps=4")
    assert json.loads((whole / "status.json").read_text())["state"] == "succeeded"
    steps = pd.read_csv(whole / "steps.csv")
    of_node = steps[steps["rank"] < 2].sent_bytes.sum()
    [carried] = [each for each in read_events(whole) if each["event"] == "carried"]
    assert carried["bytes"]["up0"] == pytest.approx(of_node, rel=1e-3)
    if method == "agreed":  # its densities follow the times of the exchange before
        return
    begun = simulated(tmp_path / "begun", *asked, "steps=2", "checkpoint_every=2")
    resumed = simulated(tmp_path / "on", *asked, "steps=4", f"resume_from={begun}")
    packets = over_gloo(tmp_path / "gloo", *asked, "steps=4")
    for run in (resumed, packets):
        found = weights(run)
        assert all(torch.equal(found[key], value) for key, value in weights(whole).items()), run
    counted = ["step", "rank", "sent_bytes", "received_bytes", "inside_bytes", "dense_bytes"]
    ours, theirs = (
        table[counted].sort_values(["step", "rank"], ignore_index=True)
        for table in (steps, pd.read_csv(packets / "steps.csv"))
    )
    pd.testing.assert_frame_equal(ours, theirs)


def test_other_nodes_of_a_checkpoint_are_refused_by_name(tmp_path):
    begun = simulated(tmp_path / "begun", *TWO, *DETERMINED, *TOPK, "workers=8", "steps=2")
    asked = ("workers=8", "workers_per_node=4", "steps=4", f"resume_from={begun}")
    run = simulated(tmp_path / "on", *TWO, *DETERMINED, *TOPK, *asked)
    error = json.loads((run / "status.json").read_text())["error"]
    assert "resume with the same workers_per_node" in error and "\n" not in error


def test_a_gradient_that_is_not_finite_is_told_of_its_own_rank():
    def work(workers: TwoLevelSimulatedWorkers) -> None:
        bucket = laid(workers.rank)
        if workers.rank == 3:
            bucket.buffer[0] = torch.nan
        ours = reduction(workers)
        ours.open(None)
        ours.reduce_bucket(0, 0, bucket)

    with pytest.raises(FloatingPointError, match="gradient of matrix .* at rank 3"):
        in_levels(2, 2, work)


@pytest.mark.parametrize("asked, why", [
    (("workers_per_node=1",), r"workers_per_node must be in \[2, workers=4\)"),
    (("workers_per_node=4",), r"workers_per_node must be in \[2, workers=4\)"),
    (("parallel.levels=3",), "levels must be 1 or 2, got 3"),
    (("method=powersgd",), "compressor must be one that works on any part of a bucket"),
    (("compressor=demo", "optimizer.momentum=0"), "compressor must be one that works on any part"),
    (("parallel=server",), "levels"),
    (("parallel=pipeline",), "levels"),
    (("method=noloco",), "levels"),
])  # fmt: skip
def test_what_has_no_two_levels_is_refused_in_one_line(asked, why):
    with pytest.raises(BadSetting, match=why) as refused:
        settings_of(*TWO, *asked)
    assert "\n" not in str(refused.value)


def test_the_name_of_a_method_tells_the_levels():
    assert settings_of(*TWO, *TOPK)["method.name"].endswith("levels=2")
