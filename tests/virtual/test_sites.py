"""Sites of nodes in virtual time: delays and rates between them, from matrices and files."""

import pytest

from harness.config.scales import composed
from harness.config.sites import Sites, sites_of
from harness.emulation.star import Star
from harness.predict.plan import stand_in
from harness.virtual.network import Simulated, SimulatedWan
from harness.virtual.traffic import Traffic
from profiles.regions import read_regions
from profiles.static import Static

MB = 1_000_000
CLEAN = {"alpha_s": 0.0, "operation_s": 0.0, "efficiency": 1.0, "queue_ms": None}
DELAYS = ((1.0, 40.0), (30.0, 2.0))
HEADER = "sender,receiver,rtt_ms,rate_mbit"


def costs(profile=None, nodes=4, **told):
    told = {"sites": (0, 0, 1, 1), "site_delays_ms": DELAYS} | told
    return SimulatedWan(**CLEAN, **told).costs(profile or Static(8.0), nodes, 1)


def sent_s(costs, sender, receiver, nbytes=1000):
    sizes = [[0] * 4 for _ in range(4)]
    sizes[sender][receiver] = nbytes
    traffic = Traffic(costs)
    flow = traffic.begin(0.0, sender, receiver, nbytes)
    while flow.end_s is None:
        traffic.advance(traffic.next_s())
    assert flow.end_s == pytest.approx(costs.send(0.0, sizes))
    return flow.end_s


def test_every_pair_has_its_delay_each_way():
    found = costs()
    for (sender, receiver), delay_s in {
        (0, 1): 0.001, (0, 2): 0.040, (2, 0): 0.030, (2, 3): 0.002, (3, 1): 0.030,
    }.items():  # fmt: skip
        assert sent_s(found, sender, receiver) == pytest.approx(delay_s + 0.001)


def test_a_short_all_reduce_waits_for_the_farthest_pair_every_time():
    assert costs().all_reduce(0.0, 4, 4) == pytest.approx(6 * 0.070, rel=0.01)


def test_a_region_bounds_what_goes_there_and_shares_it(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}\nhere,there,0,2\nthere,here,0,\n")
    sites = {"sites": ["here", "here", "there", "there"], "site_delays_ms": None}
    found = costs(regions=str(path), **sites)
    assert sent_s(found, 0, 2, MB) == pytest.approx(4.0)
    assert sent_s(found, 2, 0, MB) == pytest.approx(1.0)
    both = [[0, 0, MB, 0], [0, 0, 0, MB], [0] * 4, [0] * 4]
    assert found.send(0.0, both) == pytest.approx(8.0)
    assert found.all_reduce(0.0, MB, 4) == pytest.approx(6.0)  # 1.5 MB over the slow way


def test_one_place_is_a_star():
    near = costs(sites=(0, 0, 0, 0), site_delays_ms=((0.0,),))
    star = Simulated(**CLEAN).costs(Static(8.0), 4, 1)
    assert near.all_reduce(0.0, MB, 4) == star.all_reduce(0.0, MB, 4)
    assert near.all_gather(0.0, [MB] * 4) == star.all_gather(0.0, [MB] * 4)


def test_the_shipped_matrix_is_whole():
    names = ["Oregon", "Virginia", "Ohio", "Tokyo", "Seoul", "Singapore", "Sydney", "London",
             "Frankfurt", "Ireland"]  # fmt: skip
    matrix = read_regions("aws.csv", names)
    assert matrix.delays_ms[0][1] == 67 / 2 and matrix.rates_mbit[1][0] == 790.0
    assert all(matrix.delays_ms[a][a] == 0.0 for a in range(10))


@pytest.mark.parametrize(("lines", "named"), [
    ("from,to,rtt_ms", "header must be"),
    (f"{HEADER}\na,b,1", ":2: must have 4 values"),
    (f"{HEADER}\na,b,far,1", ":2: rtt_ms must be a number, got 'far'"),
    (f"{HEADER}\na,b,-1,1", r"rtt_ms must be a number in \[0"),
    (f"{HEADER}\na,b,1,0", "rate_mbit must be"),
    (f"{HEADER}\na,a,1,1", "must be a pair of two regions"),
    (f"{HEADER}\na,b,1,1\na,b,1,1", ":3: must be a pair of two regions, once"),
    (f"{HEADER}\na,b,1,1", "must have a row from b to a"),
    (f"{HEADER}\na,c,1,1\nc,a,1,1", "sites must be among a, c, got 'b'"),
])  # fmt: skip
def test_a_bad_matrix_is_named(lines, named, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(lines)
    with pytest.raises(ValueError, match=named):
        sites_of(["a", "b"], None, str(path))


def test_packets_and_virtual_time_take_the_same_sites():
    told = {"sites": ["Oregon", "Tokyo"], "regions": "aws.csv"}
    assert Star(**told).needs_netem(Static(8.0))
    with pytest.raises(ValueError, match="one site for each of 3 nodes"):
        SimulatedWan(**told).check(3, Static(8.0), 1.0)
    assert sites_of(told["sites"], None, "aws.csv") == Sites(
        (0, 1), ((0.0, 48.5), (48.0, 0.0)), ((None, 861.0), (523.0, None))
    )
    with pytest.raises(ValueError, match="site_delays_ms must be null"):
        Star(sites=["Oregon"], site_delays_ms=[[0]], regions="aws.csv")
    with pytest.raises(ValueError, match="sites must be given"):
        SimulatedWan()


def test_a_plan_of_sites_keeps_them():
    settings, _ = composed(["network=wan", "workers=4", "steps=1"])
    network = stand_in(settings.run()).network
    assert isinstance(network, SimulatedWan) and list(network.sites) == [0, 0, 1, 2]
    assert (
        Star().twin == "simulated" and Star(sites=[0], site_delays_ms=[[0]]).twin == "simulated_wan"
    )
