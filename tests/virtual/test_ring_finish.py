"""Workers of a ring are done apart: by what crosses the hops behind them."""

import numpy as np
import pytest

from harness.config.backends import BETWEEN_CPUS
from harness.virtual.noise import Noise
from harness.virtual.ring_finish import ring_ends_s
from profiles.static import Static
from tests.virtual.test_costs import MB, Made
from tests.virtual.threads import costs_of

CHUNK_BYTES = BETWEEN_CPUS.chunk_bytes

ONE_SLOW = Made({1: [(0, 0.1)]})  # both links of node 1 at 0.1 MB/s: hops 0-1 and 1-2
EQUAL = [0.1 * MB] * 4


def early_s(costs, collective: str, *asked) -> list[float]:
    end_s = getattr(costs, collective)(1.0, *asked)
    return costs.early_s(1.0, end_s, collective, *asked).tolist()


def test_a_ring_of_equal_hops_and_pieces_ends_for_all_at_one_time():
    costs = costs_of(Static(8.0), 4)
    assert early_s(costs, "all_gather", EQUAL) == early_s(costs, "all_reduce", 4 * MB, 4) == [0] * 4
    assert early_s(costs_of(Static(8.0), 1, 4), "all_gather", EQUAL) == [0] * 4
    assert early_s(costs, "all_to_all", [[MB] * 4] * 4) == [0] * 4


def test_who_is_far_behind_the_slowest_hop_is_done_first():
    costs = costs_of(ONE_SLOW, 4)
    # three pieces of 1 s into node 1, and out of it to node 2; the last of them goes no further,
    # and of what node 0 waits for only one has crossed a slow hop
    assert early_s(costs, "all_gather", EQUAL) == pytest.approx([1.8, 0, 0, 0.9], abs=1e-6)
    [first, *slow, between] = early_s(costs, "all_reduce", 0.4 * MB, 4)
    assert slow == pytest.approx([0, 0]) and 0 < between < first < 6


@pytest.mark.parametrize("nodes", [2, 3, 4, 8])
def test_the_last_of_a_ring_is_done_when_its_costs_say(nodes):
    rng = np.random.default_rng(nodes)
    megabytes_per_s = rng.uniform(0.1, 1.0, nodes)
    costs = costs_of(
        Made({node: [(0, share)] for node, share in enumerate(megabytes_per_s)}), nodes
    )
    hops = np.minimum(megabytes_per_s, np.roll(megabytes_per_s, -1)) * MB
    pieces = np.full(nodes, 0.3 * MB)
    gathered = ring_ends_s(hops, pieces, nodes - 1)
    assert gathered.max() == pytest.approx(costs.all_gather(0.0, pieces.tolist()))
    reduced = ring_ends_s(hops, pieces, 2 * (nodes - 1))
    assert reduced.max() == pytest.approx(costs.all_reduce(0.0, int(pieces.sum()), nodes))


def test_long_pieces_are_handed_on_before_they_are_there():
    whole = ring_ends_s(np.array([1e6, 1e6, 2e6]), np.array([4e6, 1e6, 1e6]), 2)
    chunked = ring_ends_s(np.array([1e6, 1e6, 2e6]), np.array([4e6, 1e6, 1e6]), 2, CHUNK_BYTES)
    # what worker 0 brings crosses hop 0, then hop 1, one after the other or at once
    assert whole[2] == pytest.approx(8)
    assert chunked[2] == pytest.approx(4 + CHUNK_BYTES / 1e6, abs=0.6)


def test_nothing_is_waited_for_between_workers_of_a_node():
    costs = costs_of(ONE_SLOW, 2, 2)
    assert early_s(costs, "all_gather", EQUAL) == pytest.approx([0, 1, 0, 1], abs=1e-6)


def test_what_was_slower_than_its_bytes_ends_no_further_apart():
    quick, slow = costs_of(ONE_SLOW, 4), costs_of(ONE_SLOW, 4, operation_s=5.0)
    apart = early_s(quick, "all_gather", EQUAL)
    assert early_s(slow, "all_gather", EQUAL) == pytest.approx(apart)
    short = quick.early_s(0.0, 0.3, "all_gather", EQUAL)
    assert short.max() == pytest.approx(0.3 * 0.6) and short.min() == 0


@pytest.mark.parametrize(("piece", "rest"), [(0.05, 0.05), (0.3, 0.1), (0.4, 0.2)])
def test_an_idle_bucket_and_a_last_packet_are_not_waited_for(piece, rest):
    told = {"burst_s": 0.1, "packet_bytes": 0.2 * MB}
    asked = ([piece * MB] * 4,)
    costs = costs_of(Static(8.0), 4, **told)
    gathered_s = costs.all_gather(0.0, *asked)
    assert gathered_s == pytest.approx(max(0, 3 * piece - 0.1 - rest))
    pieces = np.full(4, piece * MB)
    hops = np.full(4, 1.0 * MB)
    ends_s = ring_ends_s(hops, pieces, 3, CHUNK_BYTES, 0.1, 0.2 * MB)
    assert ends_s == pytest.approx([gathered_s] * 4)
    reduced_s = costs.all_reduce(0.0, int(4 * piece * MB), 4)
    assert reduced_s == pytest.approx(max(0, 6 * piece - 0.1 - rest))
    assert costs.all_to_all(0.0, [[100_000] * 4] * 4) == pytest.approx(0.3 - 0.1)


def test_a_bucket_that_other_flows_keep_empty_gives_nothing():
    contended = Made({}, competing=(0.0, 1))
    told = {"burst_s": 0.1, "packet_bytes": 0.2 * MB}
    for collective, asked in (("all_gather", (EQUAL,)), ("all_to_all", ([EQUAL] * 4,))):
        with_bucket, without = costs_of(contended, 4, **told), costs_of(contended, 4)
        end_s = getattr(without, collective)(0.0, *asked)
        assert getattr(with_bucket, collective)(0.0, *asked) == end_s
        early = with_bucket.early_s(0.0, end_s, collective, *asked)
        assert early.tolist() == without.early_s(0.0, end_s, collective, *asked).tolist()


def test_a_packet_goes_through_every_hop_in_debt():
    hops = np.array([1.0, 0.5, 1.0]) * MB  # worker 1 sends at half the rate
    pieces = np.array([0.1, 0.1, 0.1]) * MB
    whole = ring_ends_s(hops, pieces, 2, np.inf, 0.0, 0.2 * MB)
    # the first messages pass at once; the second, when the first is paid for
    assert whole == pytest.approx([0.1, 0.1, 0.2])
    assert ring_ends_s(hops, pieces, 2) == pytest.approx([0.3, 0.2, 0.4])


def test_nobody_is_done_before_its_own_wakings():
    costs = costs_of(ONE_SLOW, 4, wake_s=0.9)
    # by bytes alone node 0 were done after 1.2 of 3 s
    assert early_s(costs, "all_gather", EQUAL) == pytest.approx([3 - 2.7, 0, 0, 3 - 2.7], abs=1e-6)


def test_chance_comes_on_top():
    noise = Noise(latency=0.5, seed=1)
    expected = 0.01 * np.array(Noise(latency=0.5, seed=1).early(4, 3))
    costs = costs_of(Static(1e6), 4, noise=noise, wake_s=0.01)
    assert early_s(costs, "all_gather", EQUAL) == pytest.approx(expected)
