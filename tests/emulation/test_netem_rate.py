"""A star shaped by netem's rate carries what it was told, proves it, and drops by packets."""

import pytest

from harness.emulation import impairments, links
from harness.emulation.errors import NetworkError
from harness.emulation.netem_rate import NetemRateShape
from harness.emulation.packets import FRAME_BYTES
from harness.emulation.star import Star
from profiles.base import Link
from tests.emulation.inside import Flat
from tests.emulation.packets import arrivals, flow, near, round_trip_ms
from tests.emulation.test_netem import ends
from tests.emulation.test_shapers import FULL_MBIT, Halving
from tests.emulation.virtual import virtual

NETEM_RATE = {"shaper": "netem_rate", "queue_ms": 200.0}  # the machine's timers are 10 ms


@virtual
def test_a_netem_rate_is_probed_read_back_and_recorded() -> None:
    with Star(**NETEM_RATE).up(2, Flat(40.0, delay_ms=5.0), 1.0) as network:
        probes = network.probe()
        assert all(found.ok for found in probes), probes
        assert network.verify() == [], network.verify()
        recorded = network.describe()
        held = recorded["links"]["up1"]
        packets = -(-recorded["queue_bytes"] // FRAME_BYTES)
        assert (held["kind"], held["rate_mbit"]) == ("netem rate", 40.0), held
        assert held["limit_packets"] == packets and recorded["packets_of_one_mtu"]
        assert held["netem"][0]["delay_us"] == 5000, held
        assert near(round_trip_ms(*ends(network)), 20.0)


@virtual
def test_every_rate_of_a_netem_is_read_back_as_set() -> None:
    with Star(**NETEM_RATE).up(1, Flat(10.0), 1.0) as network:
        up = network.directions[0]
        for rate_mbit in (0.001, 33.333, FULL_MBIT, FULL_MBIT + 1 / 125_000, 400_000.0, 5.0):
            up.apply(network._ip, Link(rate_mbit))
            held = links.read_alone(network._ip, up.shaper)
            packets = -(-up.queue_bytes // FRAME_BYTES)
            assert held == NetemRateShape(links.rate_bytes(rate_mbit) / 125_000, packets), held


@virtual
def test_a_flow_gets_the_rate_of_a_netem_before_and_after_a_change() -> None:
    star = Star(shaper="netem_rate", queue_ms=50.0, update_s=0.2)
    with star.up(2, Halving(40.0), 1.0) as network:
        before = flow(*ends(network), seconds=4.0)
        for direction in network.directions:
            assert direction.apply(network._ip, direction.conditions(1.0))
        after = flow(*ends(network), seconds=4.0)
        print(f"40 Mbit/s: {before}; 20 Mbit/s: {after}")
        assert near(before.rate_mbit, 0.956 * 40, least=0.0), before
        assert near(after.rate_mbit, 0.956 * 20, least=0.0), after


@virtual
def test_a_netem_drops_what_is_more_than_its_packets() -> None:
    star = Star(shaper="netem_rate", queue_ms=None, queue_bytes=100 * FRAME_BYTES)
    with star.up(2, Flat(0.01), 1.0) as network:  # 37 ms a frame: few leave while all are sent
        arrived = arrivals(*ends(network), 300, quiet_s=2.0)
        drops = network.counters()["up0"].drops
        print(f"{len(arrived)} of 300 arrived, {drops} dropped")
        assert 100 <= len(arrived) <= 110 and drops == 300 - len(arrived)


@virtual
def test_what_somebody_did_to_a_netem_rate_is_noticed() -> None:
    with Star(**NETEM_RATE).up(2, Flat(100.0), 1.0) as network:
        changed = [d.place.shaper for d in network.directions if d.name == "down1"]
        network._ip.tc("change", "netem", changed[0], links.ROOT, delay=5000, limit=1000)
        assert [problem.split()[0] for problem in network.verify()] == ["down1"]


def test_a_netem_rate_needs_a_kernel_with_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impairments, "available", lambda: False)
    with pytest.raises(NetworkError, match="this kernel has no netem"):
        Star(shaper="netem_rate").check(2, Flat(100.0), 1.0)
