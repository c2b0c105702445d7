"""What is predicted of an iteration is what a run in virtual time takes, and near the papers'."""

import pytest

from harness.config import scales
from harness.fidelity import replays
from harness.fidelity.bench import Cluster, Compute
from harness.fidelity.layers import parameters, tensors
from harness.fidelity.replays import ALL_MB, ReplayedMethod, ReplayJob
from harness.predict import plan
from harness.workloads.buckets import bucket_names

# 8 Mbit/s are 1 MB/s; half of it is payload
CLUSTER = Cluster(workers=64, per_node=8, rate_mbit=8.0, efficiency=0.5, alpha_s=0.001)
JOB = ReplayJob("ResNet-18", Compute(1.0, 4.0, 32), CLUSTER)
NEAR = 0.1


def ring_s(nbytes: float) -> float:
    return 2 * 63 * 0.001 + 2 * 63 / 64 * nbytes / 500_000


def test_a_card_carries_what_one_of_all_ranks_sends():
    assert replays.all_reduce_s(CLUSTER, 64_000) == pytest.approx(ring_s(64_000))


def test_inside_a_node_only_latency_counts_and_one_worker_waits_for_nobody():
    node, alone = (CLUSTER._replace(workers=workers) for workers in (8, 1))
    assert replays.all_reduce_s(node, 1e9) == pytest.approx(14 * 0.001)
    assert replays.all_reduce_s(alone, 1e6) == 0


def test_nothing_hides_what_follows_backward():
    size = 4 * parameters("ResNet-18")
    method = ReplayedMethod("dense.Dense", overlap="after_backward", bucket_mb=ALL_MB)
    found = replays.iteration(JOB, method)
    assert found.comm_s == found.exposed_s == pytest.approx(ring_s(size))
    assert found.total_s == pytest.approx(5 + ring_s(size))


def test_a_bucket_is_sent_when_it_is_ready_and_the_one_before_has_gone():
    """COVAP's equation 3, bucket by bucket."""
    fast = JOB._replace(cluster=CLUSTER._replace(rate_mbit=1000.0))
    found = replays.iteration(fast, ReplayedMethod("dense.Dense", bucket_mb=0.0))
    known = list(reversed(tensors("ResNet-18")))
    total = sum(each.multiply_adds for each in known)
    ready_s, gone_s = 1.0, 0.0
    for each in known:
        ready_s += 4.0 * each.multiply_adds / total
        gone_s = max(ready_s, gone_s) + replays.all_reduce_s(fast.cluster, 4 * each.elements)
    assert found.total_s == pytest.approx(max(ready_s, gone_s))


def test_covap_sends_its_part_of_the_bytes_in_every_turn():
    dense = replays.iteration(JOB, ReplayedMethod("dense.Dense"))
    covap = replays.steps(JOB, ReplayedMethod("covap.COVAP", (), 0.25, turn=4))
    assert len(covap) == 4
    assert sum(step.comm_s for step in covap) == pytest.approx(dense.comm_s, rel=0.01)


def test_interference_lengthens_what_hooks_compress():
    method = ReplayedMethod("topk.TopK", (), 0.01, (("element_ns", 50.0),), hooks="wait")
    quiet = replays.iteration(JOB, method)
    loud = replays.iteration(JOB, method._replace(interference=2.0))
    sizes = {each.name: each.elements for each in tensors("ResNet-18")}
    last = sum(sizes[name] for name in bucket_names(sizes, None)[-1])
    assert quiet.compress_s == pytest.approx(50e-9 * parameters("ResNet-18"))
    assert loud.compress_s == pytest.approx(2 * quiet.compress_s - 50e-9 * last)


def test_a_part_of_a_model_takes_what_the_whole_takes():
    method = ReplayedMethod("topk.TopK", (), 0.01, (("element_ns", 50.0),))
    whole, part = (replays.iteration(JOB, method._replace(part=many)) for many in (1, 64))
    assert part.comm_s == pytest.approx(whole.comm_s, rel=0.02)
    assert part.compress_s == pytest.approx(whole.compress_s, rel=0.02)


def step_ms(*asked: str) -> float:
    (settings,) = scales.compose([*asked, "plan=true"])
    return 1e3 * plan.predict(settings.run()).step_s


def test_acp_sgds_figure_4_has_the_times_and_the_order_of_its_table_3():
    """266 and 302 ms are predicted; 248 was read from the table, and a mean over 286 from its text.

    See papers/acp_sgd/testbed.yaml.
    """
    published = {"allreduce": 266, "powersgd_packed": 302, "powersgd": 286, "acp_sgd": 248}
    own = {"powersgd": ["compressor.vectors_apart=true"]}  # the hook's
    found = {
        name: step_ms("+experiment=acp_fig4", f"method={name}", *own.get(name, []))
        for name in published
    }
    for name, ms in published.items():
        assert found[name] == pytest.approx(ms, rel=NEAR), name
    assert found["acp_sgd"] < found["allreduce"] < min(found["powersgd"], found["powersgd_packed"])


def test_covaps_figure_1_has_powersgd_as_far_behind_as_figure_11():
    """Within 5 % of linear, and 30 % below it: 0.95 / 0.7 times as long."""
    hook = ("compressor.rank=1", "compressor.vectors_apart=true")
    power = step_ms("+experiment=covap_fig1", "method=powersgd", *hook)
    covap = step_ms(
        "+experiment=covap_fig1", "method=topk", "compressor=covap", "controller.density=0.25"
    )
    assert power / covap == pytest.approx(1.36, rel=NEAR)
