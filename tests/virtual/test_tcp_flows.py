"""What connections, their windows and gloo's segments make of messages."""

from math import inf

import pytest

from harness.virtual.network import Simulated
from harness.virtual.tcp_flows import TcpFlows
from harness.virtual.traffic import Traffic
from profiles.static import Static
from tests.virtual.threads import costs_of

MB = 1_000_000


def over(rate_mbit=8.0, delay_ms=0.0, nodes=2, **told):
    profile = Static(rate_mbit, delay_ms=delay_ms)
    return costs_of(profile, nodes, tcp=TcpFlows(**told))


class Competing(Static):
    def __init__(self, rate_mbit, flows):
        super().__init__(rate_mbit)
        object.__setattr__(self, "others", flows)

    def flows(self, time_s):
        return self.others


def one_way(costs, nbytes):
    """A collective's send, and a message of a pipeline: they take as long."""
    collective = costs.send(0.0, [[0, nbytes], [0, 0]])
    traffic = Traffic(costs)
    flow = traffic.begin(0.0, 0, 1, nbytes)
    while flow.end_s is None:
        traffic.advance(traffic.next_s())
    assert flow.end_s == pytest.approx(collective)
    return collective


@pytest.mark.parametrize("flows", [1, 4])
def test_a_window_goes_once_a_round_trip(flows):
    # 4 crossings of 25 ms are 0.1 s, so a window of 10 kB is 0.1 MB/s, of a link of 1 MB/s
    took_s = one_way(over(delay_ms=25.0, window_bytes=10_000, flows=flows), MB)
    assert took_s == pytest.approx(10 / flows + 0.05)


def test_a_window_larger_than_the_link_holds_changes_nothing():
    wide = over(delay_ms=25.0, window_bytes=200_000)
    assert one_way(wide, MB) == one_way(over(delay_ms=25.0), MB)
    ring = [each.all_reduce(0.0, MB, 2) for each in (wide, over(delay_ms=25.0))]
    assert ring[0] == ring[1]


def test_a_cloud_bounds_each_connection():
    assert one_way(over(flow_bytes_per_s=0.25 * MB), MB) == pytest.approx(4.0)
    assert one_way(over(flow_bytes_per_s=0.25 * MB, flows=2), MB) == pytest.approx(2.0)


def test_several_connections_take_as_many_shares():
    for own, others, seconds in ((1, 3, 4.0), (3, 3, 2.0), (9, 3, 4 / 3)):
        crowd = costs_of(Competing(8.0, others), 2, tcp=TcpFlows(flows=own))
        assert one_way(crowd, MB) == pytest.approx(seconds)
        assert crowd.all_reduce(0.0, MB, 2) == pytest.approx(seconds)


def test_slow_start_doubles_until_the_window_is_full():
    cold = TcpFlows(initial_window_bytes=1000)
    assert cold.slow_start_s(MB, MB, 0.0) == 0.0
    # 1 + 2 + 4 kB are there after 3 round trips of 8 ms, in which the link would carry 24 kB
    assert cold.slow_start_s(7000, 10 * MB, 0.008) == pytest.approx(3 * 0.008 - 0.0007)
    lost = [cold.slow_start_s(nbytes, MB, 0.1) for nbytes in (1, 1000, 10_000, 99_000, MB, 9 * MB)]
    assert lost == sorted(lost) and lost[-1] == lost[-2] > 0
    assert TcpFlows().slow_start_s(MB, MB, 0.1) == 0.0
    warm, late = over(delay_ms=25.0), over(delay_ms=25.0, initial_window_bytes=1000)
    assert one_way(late, MB) - one_way(warm, MB) == pytest.approx(lost[-1])
    assert late.all_reduce(0.0, MB, 2) > warm.all_reduce(0.0, MB, 2)


def test_windows_that_share_a_link_fill_it_together():
    sizes = [[0] * 4, [MB, 0, 0, 0], [MB, 0, 0, 0], [MB, 0, 0, 0]]
    together = [over(delay_ms=25.0, nodes=4, **told).send(0.0, sizes) for told in (
        {}, {"initial_window_bytes": 1000})]  # fmt: skip
    alone = TcpFlows(initial_window_bytes=3000).slow_start_s(3 * MB, MB, 0.1)
    assert together[1] - together[0] == pytest.approx(alone)


def test_without_delay_segments_change_nothing():
    for nbytes in (8, 4096, 40 * MB):
        whole, divided = over(nodes=4), over(nodes=4, segment_bytes=1 << 20)
        assert divided.all_reduce(0.0, nbytes, 4) == whole.all_reduce(0.0, nbytes, 4)


def test_every_message_of_a_short_all_reduce_is_asked_for():
    """Over packets with netem: 218 ms on 2 nodes and 620 ms on 4, at a round trip of 100 ms."""
    for nodes in (2, 4):
        short = over(rate_mbit=200.0, delay_ms=25.0, nodes=nodes, segment_bytes=1 << 20)
        messages = 2 * (nodes - 1)
        assert short.all_reduce(0.0, 64, nodes) == pytest.approx(messages * 0.1, rel=0.01)


def test_two_segments_at_a_time_leave_a_long_fast_link_idle():
    mib = 1 << 20
    # a segment takes 8.4 ms of a gigabit, so two a round trip of 100 ms leave most of it idle
    far = over(rate_mbit=1000.0, delay_ms=25.0, nodes=2, segment_bytes=mib)
    segments, each_s = 2 * 16, mib / 125 / MB
    expected_s = 0.1 + 2 * each_s + (segments - 2) * (0.1 + each_s) / 2
    assert far.all_reduce(0.0, 32 * mib, 2) == pytest.approx(expected_s)
    near = over(rate_mbit=1000.0, delay_ms=1.0, nodes=2, segment_bytes=mib)
    assert near.all_reduce(0.0, 32 * mib, 2) == pytest.approx(segments * each_s + 0.004)


def test_efficiency_follows_the_rate():
    shares = {50: 0.5, 800: 0.9}
    for mbit, share in ((10, 0.5), (50, 0.5), (200, 0.7), (800, 0.9), (5000, 0.9)):
        network = Simulated(alpha_s=0.0, operation_s=0.0, efficiencies=shares)
        costs = network.costs(Static(mbit), 2, 1)
        took_s = costs.send(0.0, [[0, MB], [0, 0]])
        assert took_s == pytest.approx(MB / (share * mbit * 125_000))


@pytest.mark.parametrize(("told", "named"), [
    ({"flows": 0}, "flows"),
    ({"flow_mbit": 0}, "flow_mbit"),
    ({"window_bytes": 10}, "window_bytes"),
    ({"initial_window_bytes": 0.5}, "initial_window_bytes"),
    ({"segment_bytes": 0}, "segment_bytes"),
    ({"segment_s": -1}, "segment_s"),
    ({"efficiencies": 0.9}, "efficiencies"),
    ({"efficiencies": {"fast": 0.9}}, "efficiencies"),
    ({"efficiencies": {50: 2}}, "efficiencies"),
    ({"efficiencies": {0: 0.5}}, "efficiencies"),
])  # fmt: skip
def test_what_no_connection_is_is_refused(told, named):
    with pytest.raises(ValueError, match=named):
        Simulated(**told)


def test_nothing_bounds_a_connection_unless_told():
    assert Simulated().costs(Static(8.0), 2, 1).tcp == TcpFlows(segment_bytes=1 << 20)
    assert not TcpFlows().is_bounded and TcpFlows().window_bytes == inf
