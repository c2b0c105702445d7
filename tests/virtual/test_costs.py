"""Costs of collectives, by hand: 8 Mbit/s of a link are 1 MB/s."""

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
import pytest

from harness.config.backends import BETWEEN_CPUS
from harness.virtual.bandwidth_shares import tcp_bytes_per_s
from harness.virtual.routes import DumbbellRoutes
from harness.virtual.tcp_flows import TcpFlows
from profiles.base import Extremes, Link
from profiles.static import Static
from tests.virtual.threads import costs_of

CHUNK_BYTES = BETWEEN_CPUS.chunk_bytes

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


ASKED = {  # arguments of four workers; seconds of the bytes, and messages in a row
    "all_reduce": ((4 * MB, 4), 6.0, 6),
    "reduce_scatter": ((4 * MB, 4), 3.0, 3),
    "all_gather": (([MB] * 4,), 3.0, 3),
    "broadcast": ((MB, 4), 1.0, 3),
    "all_to_all": (([[MB] * 4] * 4,), 3.0, 3),
    "send": (([[MB] * 4] * 4,), 3.0, 1),
}


@pytest.mark.parametrize(("segment_bytes", "segments"), [(0, 1), (MB, 2), (MB // 5, 5)])
@pytest.mark.parametrize("collective", [each for each in ASKED if each != "broadcast"])
def test_a_message_is_longer_than_what_is_in_it(collective, segment_bytes, segments):
    """Of an all-reduce by the segments of a piece of 1 MB, of an all-gather by its chunks."""

    def took_s(message_bytes: float) -> float:
        tcp = TcpFlows(segment_bytes=segment_bytes, message_bytes=message_bytes)
        return getattr(costs_of(Static(8.0), 4, tcp=tcp), collective)(0.0, *asked)

    asked, _, messages = ASKED[collective]
    each = {"all_reduce": segments, "all_gather": -(-MB // CHUNK_BYTES), "send": 3}
    assert took_s(1000) - took_s(0) == pytest.approx(1e-3 * messages * each.get(collective, 1))


@pytest.mark.parametrize("collective", ASKED)
def test_bytes_hide_wakings_and_else_wakings_bound_what_is_taken(collective):
    asked, bytes_s, messages = ASKED[collective]

    def took_s(delay_ms: float = 0.0, **told: float) -> float:
        costs = costs_of(Made({}, delay_ms=delay_ms), 4, alpha_s=0.01, **told)
        return getattr(costs, collective)(1.0, *asked) - 1

    assert took_s(wake_s=0.1) == took_s() == pytest.approx(bytes_s + messages * 0.01)
    assert took_s(wake_s=7.0) == pytest.approx(messages * 7.0)
    delayed_s = took_s(delay_ms=10.0) - took_s()
    assert delayed_s > 0
    assert took_s(10.0, wake_s=7.0) == pytest.approx(messages * 7.0 + delayed_s)


def test_ranks_that_share_a_node_wake_too():
    costs = costs_of(Static(8.0), 1, 4, alpha_s=0.01, wake_s=0.1)
    assert costs.all_reduce(0.0, 4 * MB, 4) == pytest.approx(6 * 0.1)
    assert costs.all_to_all(0.0, [[MB] * 4] * 4) == pytest.approx(3 * 0.1)


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


def test_messages_wait_for_what_competing_flows_keep_in_a_queue():
    contended = Made({}, competing=(0.0, 1))
    wait_s = 0.85 * 0.2  # 0.2 MB at 1 MB/s, between full and 0.7 of it
    costs = costs_of(contended, 4, 1, queue_bytes=0.2 * MB)
    assert costs.all_reduce(0.0, 400, 4) == pytest.approx(6 * wait_s)
    # its receivers have been ready since it began: of four queues in a ring two are long
    assert costs.all_gather(2.0, [100, 200, 300, 400]) == pytest.approx(2 + 2 * wait_s)
    # a message of 1 MB takes 2 s at its share of the rate, which is longer
    assert all_reduce(contended, 4, queue_bytes=0.2 * MB) == pytest.approx(12.0)
    assert costs.all_to_all(20.0, [[0, 1], [1, 0]]) == pytest.approx(20 + wait_s)
    assert costs_of(Made({}), 4, 1, queue_bytes=MB).all_reduce(0.0, 400, 4) < 1e-3


@pytest.mark.parametrize(("flows", "window"), [(1, 0.85), (2, 0.94), (4, 1.03), (8, 1.12)])
def test_several_flows_keep_more_in_a_queue(flows, window):
    costs = costs_of(Made({}, competing=(0.0, flows)), 4, 1, queue_bytes=0.2 * MB)
    assert costs.all_reduce(0.0, 400, 4) == pytest.approx(6 * window * 0.2)


def test_messages_stop_waiting_when_the_flows_have_gone():
    @dataclass
    class Leaving(Made):
        def flows(self, time_s: float) -> int:
            return int(time_s < 1.0)

    costs = costs_of(Leaving({}), 4, 1, queue_bytes=MB)  # a message waits for 0.85 s
    messages = 6 - 1 / 0.85  # that are left after 1 s, of 100 bytes each
    assert costs.all_reduce(0.0, 400, 4) == pytest.approx(1 + messages * 1e-4, abs=1e-6)


def test_an_all_gather_takes_what_its_busiest_link_carries():
    slow = Made({0: [(0, 0.1)]})  # who sends all pieces but that of the next, and receives as much
    sizes = [4 * MB, MB, 2 * MB, 3 * MB]
    assert costs_of(slow, 4).all_gather(0.0, sizes) == pytest.approx((10 - 1) / 0.1)
    assert costs_of(Static(8.0), 4).all_gather(0.0, [0, 0, 0, 0]) == 0


def test_the_longest_piece_travels_all_hops_of_an_all_gather_chunk_by_chunk():
    short, long, chunk = 0.1 * MB, 0.4 * MB, CHUNK_BYTES
    of_one_chunk = [short, long, short, short]
    assert costs_of(Static(8.0), 4).all_gather(0.0, of_one_chunk) == pytest.approx(3 * 0.4)
    of_many = [short, 10 * MB, short, short]  # its last chunk follows the others at each hop
    expected = pytest.approx(10 + 2 * chunk / MB)
    assert costs_of(Static(8.0), 4).all_gather(0.0, of_many) == expected
    uneven = Made({0: [(0, 0.5)], 1: [(0, 0.25)], 2: [(0, 0.5)]})  # hops at 0.25, 0.25, 0.5, 0.5
    assert costs_of(uneven, 4).all_gather(0.0, of_one_chunk) == pytest.approx(3 * 0.4 * 3)


def test_ranks_that_share_a_processor_wake_later_where_both_ends_have_to():
    costs = costs_of(Static(8.0), 4, wake_s=0.01, cpu_oversubscription=9.0)
    assert costs.all_reduce(0.0, 40, 4) == pytest.approx(6 * 0.01 * 3)
    assert costs.all_gather(0.0, [100] * 4) == pytest.approx(3 * 0.01)
    assert costs.all_to_all(0.0, [[100] * 4] * 4) == pytest.approx(3 * 0.01)


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
    alone_s = 4 * MB / tcp_bytes_per_s(0.1, 1 - 0.995**2)
    draws = np.random.default_rng(0).poisson(2 * MB * (1 - 0.995**2) / 1448, (2, 100_000))
    more = draws.max(axis=0).mean() / draws.mean()  # losses, of two messages in a row
    assert ends == pytest.approx(more * alone_s + 2 * 0.05, rel=0.002)


def dumbbell(profile, workers, sharing=1, left=None, access=None, **told):
    nodes = workers // sharing
    routes = DumbbellRoutes(profile, nodes, left or nodes // 2, access)
    return costs_of(profile, nodes, sharing, routes, **told)


def test_a_ring_crosses_the_trunk_of_a_dumbbell_once_each_way():
    costs = dumbbell(Made({}), 8)
    assert costs.all_reduce(0.0, 4 * MB, 8) == pytest.approx(7)  # 2 * 7/8 * 4 MB at 1 MB/s
    assert costs.carried == {"trunk_up": 7 * MB, "trunk_down": 7 * MB}
    competing = dumbbell(Made({}, competing=(0, 3)), 8).all_reduce(0.0, 4 * MB, 8)
    assert competing == pytest.approx(4 * 7)


def test_an_all_to_all_shares_the_trunk_among_all_that_cross_it():
    sizes = [[MB] * 6 for _ in range(6)]
    assert dumbbell(Made({}), 6).all_to_all(0.0, sizes) == pytest.approx(9)  # 3 x 3 MB each way
    uneven = dumbbell(Made({}), 6, left=1)
    assert uneven.all_to_all(0.0, sizes) == pytest.approx(5)
    shared = dumbbell(Made({}, competing=(0, 3)), 6).all_to_all(0.0, sizes)
    assert shared == pytest.approx(9 * 12 / 9)  # nine connections of twelve
    on_two_nodes = dumbbell(Made({}), 6, sharing=3)
    assert on_two_nodes.all_to_all(0.0, sizes) == pytest.approx(9)
    assert on_two_nodes.carried == {"trunk_up": 9 * MB, "trunk_down": 9 * MB}


def test_access_links_of_a_dumbbell_bind_where_they_are_slower():
    access = Made({2: [(0, 0.25)]})
    costs = dumbbell(Made({}), 4, access=access)
    assert costs.all_reduce(0.0, 4 * MB, 4) == pytest.approx(4 * 6)
    assert set(costs.carried) == {f"{way}{n}" for way in ("up", "down") for n in range(4)} | {
        "trunk_up", "trunk_down"
    }  # fmt: skip
    delayed = dumbbell(Made({}, delay_ms=50), 4, access=Made({}, delay_ms=10))
    # of the four hops two are inside a half; the piece that is last skips only one of these
    assert delayed.all_gather(0.0, [0] * 4) == pytest.approx(0.02 + 2 * 0.07)


def test_a_link_carries_what_one_of_all_ranks_sends_and_not_one_of_as_many_as_nodes():
    costs = costs_of(Static(8.0), 8, 8)
    assert costs.all_reduce(0.0, 64 * MB, 64) == pytest.approx(2 * 63)
    gathered = costs_of(Static(8.0), 8, 8).all_gather(0.0, [MB] * 64)
    assert gathered == pytest.approx(63)
    for node in range(8):
        assert costs.carried[f"up{node}"] == costs.carried[f"down{node}"] == 2 * 63 * MB


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    told = {"alpha_s": 0.01}
    costs = costs_of(Static(8.0), 4, **told)
    scattered = costs.reduce_scatter(0.0, 4 * MB, 4)
    assert costs.all_gather(scattered, [MB] * 4) == pytest.approx(
        all_reduce(Static(8.0), 4, **told)
    )


def test_a_broadcast_is_handed_on_to_all_but_the_one_who_began():
    costs = costs_of(Static(8.0), 4, alpha_s=0.01)
    assert costs.broadcast(0.0, 2 * MB, 4, root=2) == pytest.approx(2 + 3 * 0.01)
    assert costs.carried == {f"up{n}": 2 * MB for n in (0, 2, 3)} | {
        f"down{n}": 2 * MB for n in (0, 1, 3)
    }


def test_sends_at_the_same_time_share_only_what_they_both_cross():
    def sent(**sizes):
        matrix = [[0] * 4 for _ in range(4)]
        for pair, nbytes in sizes.items():
            matrix[int(pair[1])][int(pair[2])] = nbytes
        return costs_of(Static(8.0), 4, alpha_s=0.01).send(0.0, matrix)

    assert sent() == 0
    assert sent(_01=3 * MB) == pytest.approx(3.01)
    assert sent(_01=3 * MB, _23=2 * MB) == pytest.approx(3.01)
    assert sent(_01=3 * MB, _21=2 * MB) == pytest.approx(5.01)  # into node 1
    assert sent(_11=3 * MB) == pytest.approx(0.01)  # nothing leaves it
