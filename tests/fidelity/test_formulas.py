"""The formulas against values by hand."""

from dataclasses import replace

import pytest

from harness.fidelity import costs, iterations
from harness.fidelity.fabric import Fabric
from harness.fidelity.iterations import Job
from harness.fidelity.layers import Tensor
from harness.fidelity.testbed import Compute, Device
from harness.fidelity.timeline import Unit, iteration

# 8 Mbit/s are 1 MB/s; half of it is payload
FABRIC = Fabric(workers=64, per_node=8, rate_mbit=8.0, efficiency=0.5, alpha_s=0.001)
DEVICE = Device(flops=1e6, memory_bytes_per_s=1e6, launch_s=0.5, qr_column_s=0.1)
MATRIX, VECTOR = Tensor("w", (100, 5, 2), 30), Tensor("b", (100,), 10)


def test_a_card_carries_what_one_of_all_ranks_sends():
    bytes_s = 2 * 63 / 64 * 64_000 / 500_000  # P is 64, not 8 nodes
    assert FABRIC.all_reduce_s(64_000) == pytest.approx(bytes_s + 2 * 63 * 0.001)
    assert FABRIC.all_gather_s(1000) == pytest.approx(63 * 1000 / 500_000 + 63 * 0.001)


def test_all_gathers_may_be_less_efficient():
    slower = replace(FABRIC, gather_factor=0.5)
    assert slower.all_gather_s(1000) == pytest.approx(63 * 1000 / 250_000 + 63 * 0.001)
    assert slower.all_reduce_s(1000) == FABRIC.all_reduce_s(1000)


def test_one_worker_has_nobody_to_wait_for():
    alone = replace(FABRIC, workers=1)
    assert alone.all_reduce_s(1e6) == alone.all_gather_s(1e6) == 0


def test_inside_a_node_only_latency_counts():
    assert replace(FABRIC, workers=8).all_reduce_s(1e9) == pytest.approx(14 * 0.001)


def test_nodes_are_full():
    with pytest.raises(ValueError, match="multiple of the 8 of a node, got 12"):
        replace(FABRIC, workers=12)


def test_what_is_sent_overlaps_with_what_is_computed_after_it():
    units = [Unit(1.0, 0.0, 3.0), Unit(1.0, 0.0, 0.5)]
    assert iteration(2.0, units, "overlapped").total_s == pytest.approx(2 + 1 + 3 + 0.5)
    assert iteration(2.0, units, "blocking").total_s == pytest.approx(2 + 2 + 3.5)
    assert iteration(2.0, units, "after_backward").total_s == pytest.approx(2 + 2 + 3.5)


def test_compression_delays_backward_and_decompression_ends_the_step():
    found = iteration(1.0, [Unit(1.0, 0.5, 0.2), Unit(1.0, 0.5, 0.2)], "overlapped", 0.25)
    assert found.total_s == pytest.approx(1 + 3 + 0.2 + 0.25)
    assert (found.compute_s, found.comm_s) == (3.0, 0.4)
    assert found.compress_s == pytest.approx(1.25)
    assert found.exposed_s == pytest.approx(0.2)


def test_bytes():
    both = [MATRIX, VECTOR]
    assert costs.dense_bytes(both) == 4400
    assert costs.half_bytes(both) == 2200
    assert costs.sparse_bytes(both, 0.1) == pytest.approx(110 * 12)
    assert costs.sign_bytes(both, packed=True) == 1100 / 8 + 4
    assert costs.sign_bytes(both, packed=False) == 1104
    assert costs.factor_bytes(both, 3, 0) == 4 * 3 * 100
    assert costs.factor_bytes(both, 3, 1) == 4 * 3 * 10
    assert costs.factor_bytes(both, 30, 1) == 4 * 10 * 10  # no rank is above the shape's
    assert costs.vector_bytes(both) == 400


def test_seconds_of_low_rank_compression():
    qr_s = 3 * 0.1 + 4 * 100 * 9 / 1e6
    products_s = 9 * 4000 / 1e6 + 3 * 2 * 1000 * 3 / 1e6
    assert costs.power_s([MATRIX, VECTOR], 3, DEVICE) == pytest.approx(0.5 + qr_s + products_s)
    qr_s = 3 * 0.1 + 4 * 10 * 9 / 1e6  # of the other factor
    products_s = 6 * 4000 / 1e6 + 2 * 2 * 1000 * 3 / 1e6
    assert costs.acp_s([MATRIX, VECTOR], 3, 0, DEVICE) == pytest.approx(qr_s + products_s)
    decode_s = 4000 / 1e6 + 2 * 1000 * 3 / 1e6
    assert costs.decode_s([MATRIX, VECTOR], 3, DEVICE) == pytest.approx(decode_s)


@pytest.fixture
def job() -> Job:
    return Job((MATRIX, VECTOR), Compute(1.0, 4.0, 32), FABRIC)


def test_backward_is_shared_by_multiply_adds(job):
    found = iterations.dense(job, bucket_mb=0.0)
    sends = [job.fabric.all_reduce_s(size) for size in (400, 4000)]
    # the vector, last registered, is ready after a quarter of backward
    assert found.total_s == pytest.approx(max(1 + 4, 1 + 1 + sends[0]) + sends[1])


def test_every_unit_of_covap_goes_once_in_its_interval(job):
    assert iterations.covap(job, 1) == pytest.approx(iterations.dense(job))
    dense_s = iterations.dense(job).comm_s
    assert iterations.covap(job, 4).comm_s == pytest.approx(dense_s / 4)


def test_compute_is_in_proportion_to_the_batch():
    compute = Compute(1.0, 2.0, 32)
    assert compute.at(16) == Compute(0.5, 1.0, 16)
    assert compute.at(None) == compute
