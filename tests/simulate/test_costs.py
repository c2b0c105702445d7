"""Costs of collectives, by hand: 8 Mbit/s of a link are 1 MB/s."""

from dataclasses import dataclass
from math import inf, sqrt

import pytest

from harness.simulate.costs import tcp_bytes_per_s
from profiles.base import Extremes, Link
from profiles.static import Static
from tests.simulate.threads import costs_of

MB = 1_000_000


@dataclass
class Made:
    """A profile made of a rate for each node's link at each time, in MB/s."""

    rates: dict[int, list[tuple[float, float]]]  # by node: from when, rate; others 1 MB/s
    competing: tuple[float, int] = (inf, 0)  # from when, how many
    delay_ms: float = 0.0
    loss: float = 0.0

    def link(self, time_s: float, node: int, way: str) -> Link:
        held = [rate for since_s, rate in self.rates.get(node, []) if time_s >= since_s - 1e-9]
        return Link(8 * (held[-1] if held else 1.0), self.delay_ms, 0.0, self.loss)

    def flows(self, time_s: float) -> int:
        since_s, count = self.competing
        return count if time_s >= since_s - 1e-9 else 0

    def extremes(self) -> Extremes:
        raise AssertionError("costs need no bounds")


def all_reduce(profile, workers, start_s=0.0, sharing=1, **told):
    costs = costs_of(profile, workers // sharing, sharing, **told)
    return costs.all_reduce(start_s, 4 * MB, workers)


def test_at_a_constant_rate_a_ring_takes_its_bytes_over_the_rate():
    assert all_reduce(Static(8.0), 4) == pytest.approx(6.0)  # 2 * 3/4 * 4 MB
    assert all_reduce(Static(8.0), 2, start_s=1.5) == pytest.approx(5.5)
    assert all_reduce(Static(8.0), 4, efficiency=0.956) == pytest.approx(6 / 0.956)


def test_latency_is_of_every_message_of_the_ring():
    told = {"alpha_s": 0.01, "operation_s": 0.5}
    assert all_reduce(Static(8.0), 4, **told) == pytest.approx(6 + 0.5 + 6 * 0.01)
    gathered = costs_of(Static(8.0), 4, **told).all_gather(0.0, [MB] * 4)
    assert gathered == pytest.approx(3 + 0.5 + 3 * 0.01)


def test_a_rate_that_halves_in_the_middle_of_a_transfer():
    profile = Made({0: [(0, 1.0), (2, 0.5)], 1: [(0, 1.0), (2, 0.5)]})
    # 4 MB: 2 MB in the first 2 s, the other 2 MB at half the rate
    assert all_reduce(profile, 2) == pytest.approx(2 + 4)
    # not seen before the next look at the profile
    assert all_reduce(profile, 2, update_s=5.0) == pytest.approx(4.0)


def test_a_straggler_slows_the_ring_down_while_it_is_one():
    slow = Made({2: [(0, 0.25)]})
    assert all_reduce(slow, 4) == pytest.approx(24.0)
    passing = Made({2: [(0, 1.0), (3, 0.25), (7, 1.0)]})
    assert all_reduce(passing, 4) == pytest.approx(7 + (6 - 3 - 1))


def test_slow_links_at_different_times_each_slow_the_ring_down():
    profile = Made({0: [(0, 0.5), (2, 1.0)], 3: [(0, 1.0), (2, 0.5), (4, 1.0)]})
    assert all_reduce(profile, 4) == pytest.approx(4 + (6 - 1 - 1))


def test_competing_flows_take_their_even_share():
    assert all_reduce(Made({}, competing=(0, 3)), 4) == pytest.approx(4 * 6)
    assert all_reduce(Made({}, competing=(4, 1)), 4) == pytest.approx(4 + 2 * 2)


def test_an_all_gather_takes_what_its_busiest_link_carries():
    sizes = [4 * MB, MB, 2 * MB, 3 * MB]
    assert costs_of(Static(8.0), 4).all_gather(0.0, sizes) == pytest.approx(10 - 1)
    assert costs_of(Static(8.0), 4).all_gather(0.0, [0, 0, 0, 0]) == 0


def test_workers_of_a_node_share_the_one_hop_that_leaves_it():
    assert all_reduce(Static(8.0), 8, sharing=4) == pytest.approx(2 * 7 / 8 * 4)
    # only what enters a node counts: pieces of ranks 0 and 2 are those that a link need not carry
    costs = costs_of(Static(8.0), 2, sharing=2)
    assert costs.all_gather(0.0, [3 * MB, 0, 2 * MB, 0]) == pytest.approx(5 - 2)
    assert costs.carried == {"up0": 3 * MB, "down1": 3 * MB, "up1": 2 * MB, "down0": 2 * MB}


def test_workers_of_one_node_pay_for_latency_alone():
    assert all_reduce(Static(8.0), 4, sharing=4, alpha_s=0.01) == pytest.approx(0.06)
    assert all_reduce(Static(8.0), 1, alpha_s=0.01, operation_s=1.0) == 0


def test_an_all_to_all_is_bound_by_each_link_alone():
    sizes = [[9 * MB, MB, 2 * MB], [MB, 9 * MB, MB], [4 * MB, MB, 9 * MB]]
    costs = costs_of(Static(8.0), 3)
    assert costs.all_to_all(0.0, sizes) == pytest.approx(5.0)  # out of 2, into 0
    assert costs.carried["up2"] == 5 * MB and costs.carried["down1"] == 2 * MB
    slow = Made({1: [(0, 0.25)]})
    assert costs_of(slow, 3).all_to_all(0.0, sizes) == pytest.approx(8.0)  # 2 MB out of 1
    # one connection to each of two others, beside two competing flows
    shared = costs_of(Made({}, competing=(0, 2)), 3).all_to_all(0.0, sizes)
    assert shared == pytest.approx(10.0)


def test_delays_count_once_a_message_on_every_hop_it_takes():
    profile = Made({}, delay_ms=50)  # up and down: 0.1 s a hop
    assert all_reduce(profile, 4) == pytest.approx(6 + 6 * 0.1)
    assert all_reduce(profile, 8, sharing=2) == pytest.approx(2 * 7 / 8 * 4 + 8 * 0.1)


def test_loss_bounds_a_flow_as_rfc_5348_has_it():
    rtt_s, loss = 0.1, 0.01
    simple = 1448 / (rtt_s * sqrt(2 * loss / 3))  # Mathis, with C = sqrt(3/2)
    assert tcp_bytes_per_s(rtt_s, 0.0) == inf
    assert 0.75 * simple < tcp_bytes_per_s(rtt_s, loss) < simple
    assert tcp_bytes_per_s(rtt_s, 1e-5) == pytest.approx(1448 / (rtt_s * sqrt(2e-5 / 3)), rel=1e-3)
    fast = Made({0: [(0, 100.0)], 1: [(0, 100.0)]}, delay_ms=25, loss=0.005)
    ends = all_reduce(fast, 2)
    assert ends == pytest.approx(4 * MB / tcp_bytes_per_s(0.1, 1 - 0.995**2) + 2 * 0.05)
