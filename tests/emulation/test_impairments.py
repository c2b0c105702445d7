"""A cut cable delays, loses and reorders as it is told, says what it holds, and loses no more."""

import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from pyroute2 import IPRoute

from harness.emulation import impairments, links, per_source_netem, tcp_settings, veth
from harness.emulation.impairments import Impairment
from harness.emulation.links import NetworkError
from harness.emulation.namespaces import Namespace
from profiles.base import Link
from tests.emulation.inside import inside
from tests.emulation.packets import (
    End,
    arrivals,
    datagrams,
    flow,
    near,
    round_trip_ms,
    round_trips_ms,
)
from tests.emulation.virtual import virtual

A, B = 100, 101  # indices: near eth0 - a | b - eth0 far; b delays the way to far, a the way back
RATE_MBIT = 1.0  # of links whose rate nobody looks at


class Cable(NamedTuple):
    ip: IPRoute
    near: End
    far: End


@contextmanager
def cut_cable(*more: str) -> Iterator[Cable]:
    """Two namespaces joined by a patched cable; `more` are further addresses of the near one."""
    with IPRoute() as ip:
        ends = [End(Namespace.create(), address) for address in ("10.0.0.1", "10.0.0.2")]
        for end, index, other in ((ends[0], A, ends[1]), (ends[1], B, ends[0])):
            peer = {"ifname": "eth0", "net_ns_fd": end.namespace.descriptor}
            peer["address"] = f"02:00:00:00:00:{end.address[-1]:0>2}"
            for namespace in (Namespace.current(), end.namespace):
                with namespace.entered():
                    tcp_settings.set_sysctls(tcp_settings.PINNED)  # no packets but the law's own
            ip.link("add", kind="veth", ifname=f"cut{index}", index=index, peer=peer)
            with end.namespace.entered(), IPRoute() as inside_end:
                eth0 = socket.if_nametoindex("eth0")
                inside_end.link("set", index=1, state="up")
                inside_end.link("set", index=eth0, state="up")
                for address in (end.address, *(more if index == A else ())):
                    inside_end.addr("add", index=eth0, address=address, prefixlen=24)
                for address in (other.address, *(more if index == B else ())):
                    mac = f"02:00:00:00:00:{other.address[-1]:0>2}"
                    inside_end.neigh("add", dst=address, lladdr=mac, ifindex=eth0, state=128)
        impairments.join(ip, A, B, "up0")
        for end in ends:
            with end.namespace.entered(), IPRoute() as inside_end:
                veth.await_carriers(inside_end)
        yield Cable(ip, *ends)


def counted(ip: IPRoute, index: int) -> dict[str, Any]:
    """Packets, bytes and drops of the netem at the root of `index`."""
    found = [q for q in ip.get_qdiscs(index) if q["handle"] == impairments.HANDLE]
    stats = found[0].get_attr("TCA_STATS2")
    return dict(stats.get_attr("TCA_STATS_BASIC")) | dict(stats.get_attr("TCA_STATS_QUEUE"))


@pytest.mark.parametrize(("link", "message"), [
    (Link(1.0, delay_ms=300_000.0), r"delay_ms must be in \[0, 270000.0\] real ms .*, got 3000"),
    (Link(1.0, delay_ms=-1.0), r"delay_ms must be in .*, got -1.0"),
    (Link(1.0, delay_ms=2.0, jitter_ms=3.0), r"jitter_ms must be in \[0, 2.0\] .*, got 3.0"),
    (Link(1.0, delay_ms=9e3, jitter_ms=3e3), r"jitter_ms must be in \[0, 2000.0\] .*, got 3000"),
    (Link(1.0, loss=1.0), r"loss must be in \[0, 1\), got 1.0"),
    (Link(1.0, delay_ms=1.0, reorder=float("nan")), r"reorder must be in .*, got nan"),
])  # fmt: skip
def test_what_netem_cannot_hold_is_refused_with_value_and_range(link: Link, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        impairments.intended(link)


@inside
def test_a_kernel_has_netem_or_says_how_to_get_it() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    if impairments.available():
        impairments.require()
        with cut_cable() as cable:
            impairments.impair(cable.ip, B, "up0", Link(RATE_MBIT, 20.0))
            assert near(round_trip_ms(cable.near, cable.far), 20.0)
    else:
        with pytest.raises(NetworkError, match="has no netem .*modprobe sch_netem.*linux-modules"):
            impairments.require()
        with IPRoute() as ip, pytest.raises(NetworkError, match="add netem to up0: .*lacks it"):
            impairments.impair(ip, 1, "up0", Link(RATE_MBIT, 20.0))
    if not impairments.available():
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert [name for _, name in socket.if_nameindex() if not name.startswith("cut")] == ["lo"]


@inside
def test_a_patched_cable_carries_whole_segments() -> None:
    with cut_cable() as cable:
        assert len(round_trips_ms(cable.near, cable.far, 9)) == 9
        flowed = flow(cable.near, cable.far, 0.3)
        assert flowed.rate_mbit > 100, flowed


@inside
def test_only_segmentation_offload_is_turned_off() -> None:
    with cut_cable() as cable, cable.near.namespace.entered():
        before = tcp_settings.read_offloads("eth0")
        impairments.one_packet_each("eth0")
        assert tcp_settings.read_offloads("eth0") == before | {"tso": False}
        with pytest.raises(NetworkError, match="offload of eth7 off: No such device"):
            impairments.one_packet_each("eth7")


@virtual
def test_every_option_is_read_back_as_set_and_replaced_by_the_next() -> None:
    with IPRoute() as ip:
        asked = [Link(RATE_MBIT, 0.001), Link(RATE_MBIT, 12.345, 2.5, 1e-6, 0.25),
                 Link(RATE_MBIT, loss=0.999), Link(RATE_MBIT, 269_999.0, 2_000.0),
                 Link(RATE_MBIT)]  # fmt: skip
        impairments.impair(ip, 1, "up0", Link(RATE_MBIT, 100.0, 50.0, 0.5, 0.5))
        for link in asked:
            assert impairments.change(ip, 1, "up0", link)
            held = impairments.read(ip, 1, "up0")
            assert held.agrees(impairments.intended(link)), (held, link)
            assert not impairments.change(ip, 1, "up0", link)
        assert held == Impairment(0, 0, 0.0, 0.0, impairments.LIMIT_PACKETS), held


@virtual
def test_a_netem_that_somebody_took_or_replaced_is_noticed() -> None:
    with IPRoute() as ip:
        impairments.impair(ip, 1, "up0", Link(RATE_MBIT, 1.0))
        ip.tc("change", "netem", 1, impairments.HANDLE, delay=2000)
        held = impairments.read(ip, 1, "up0")
        assert held.delay_us == 2000 and held.limit_packets == 1000, held
        ip.tc("del", "netem", 1, impairments.HANDLE)
        ip.tc("add", "tbf", 1, impairments.HANDLE, rate=1000, burst=2000, limit=9000)
        for act in (
            lambda: impairments.read(ip, 1, "up0"),
            lambda: impairments.change(ip, 1, "up0", Link(RATE_MBIT)),
        ):
            with pytest.raises(NetworkError, match="netem of up0: it is gone or of another kind"):
                act()


@virtual
def test_each_way_is_delayed_alone_and_a_round_trip_takes_both() -> None:
    with cut_cable() as cable:
        for index in (A, B):
            impairments.impair(cable.ip, index, f"way {index}", Link(RATE_MBIT))
        for there_ms, back_ms in ((1.0, 1.0), (20.0, 0.0), (0.0, 40.0), (50.0, 50.0)):
            impairments.change(cable.ip, B, "there", Link(RATE_MBIT, there_ms))
            impairments.change(cable.ip, A, "back", Link(RATE_MBIT, back_ms))
            taken_ms = round_trip_ms(cable.near, cable.far)
            print(f"asked {there_ms} + {back_ms} ms, round trip {taken_ms:.2f} ms")
            assert near(taken_ms, there_ms + back_ms), (there_ms, back_ms, taken_ms)


@virtual
def test_jitter_is_uniform_around_the_delay_and_reorders() -> None:
    with cut_cable() as cable:
        impairments.impair(cable.ip, B, "up0", Link(RATE_MBIT, 20.0, 10.0))
        taken_ms = round_trips_ms(cable.near, cable.far, 150)
        low_ms, median_ms, high_ms = statistics.quantiles(taken_ms, n=4)
        print(f"20 ms +- 10: quarters at {low_ms:.1f}, {median_ms:.1f}, {high_ms:.1f} ms")
        assert min(taken_ms) >= 9.9, min(taken_ms)
        assert near(min(taken_ms), 10.0), min(taken_ms)
        for measured_ms, wanted_ms in ((low_ms, 5.0), (median_ms, 10.0), (high_ms, 15.0)):
            more_ms = measured_ms - min(taken_ms)  # what the machine takes of each is in both
            assert near(more_ms, wanted_ms, least=4.0), (low_ms, median_ms, high_ms)
        order = arrivals(cable.near, cable.far, 300)
        assert sorted(order) == list(range(300)) != order


@virtual
def test_the_share_of_packets_that_is_asked_for_is_lost() -> None:
    with cut_cable() as cable:
        impairments.impair(cable.ip, B, "up0", Link(RATE_MBIT, loss=0.05))
        count = 6000
        lost = 1 - len(arrivals(cable.near, cable.far, count)) / count
        deviation = (0.05 * 0.95 / count) ** 0.5
        print(f"loss 0.05: {lost:.4f}")
        assert abs(lost - 0.05) < 5 * deviation, lost
        drops = counted(cable.ip, B)["drops"]
        assert drops == round(lost * count), (drops, lost)


@virtual
def test_a_flow_loses_single_packets_of_one_mtu() -> None:
    with cut_cable() as cable:
        with cable.near.namespace.entered():
            impairments.one_packet_each("eth0")
        impairments.impair(cable.ip, B, "up0", Link(RATE_MBIT, 1.0, loss=0.01))
        flowed = flow(cable.near, cable.far, 6.0)
        passed = counted(cable.ip, B)
        frames = passed["packets"] + passed["drops"]
        share, deviation = passed["drops"] / frames, (0.01 * 0.99 / frames) ** 0.5
        print(f"loss 0.01: {share:.5f} of {frames} frames, {flowed}")
        assert passed["bytes"] / passed["packets"] <= 1514, passed
        assert frames > 2000 and abs(share - 0.01) < 5 * deviation, passed
        assert flowed.retransmits >= 0.8 * passed["drops"], (flowed, passed)


@virtual
def test_the_share_of_packets_that_is_asked_for_overtakes() -> None:
    with cut_cable() as cable:
        impairments.impair(cable.ip, B, "up0", Link(RATE_MBIT, 30.0, reorder=0.1))
        count = 2000
        order = arrivals(cable.near, cable.far, count, every_s=0.0005)
        place = {number: position for position, number in enumerate(order)}
        assert len(place) == count
        overtook = sum(place[n] < place[n - 1] for n in range(1, count)) / count
        expected = 0.1 * 0.9  # it overtakes, the one before it does not
        print(f"reorder 0.1: {overtook:.4f} overtook their neighbour, expected {expected}")
        assert abs(overtook - expected) < 5 * (expected / count) ** 0.5, overtook
        impairments.change(cable.ip, B, "up0", Link(RATE_MBIT, 30.0))
        assert arrivals(cable.near, cable.far, 500) == list(range(500))


@virtual
def test_changes_under_way_and_long_queues_lose_nothing() -> None:
    with cut_cable() as cable:
        impairments.impair(cable.ip, B, "up0", Link(RATE_MBIT, 900.0))
        assert arrivals(cable.near, cable.far, 3000, quiet_s=2.0) == list(range(3000))

        def change_often() -> None:
            for number in range(40):
                delay_ms = (10.0, 100.0, 3.0, 60.0)[number % 4]
                impairments.change(cable.ip, B, "up0", Link(RATE_MBIT, delay_ms))
                time.sleep(0.02)  # the pace of the changes

        thread = threading.Thread(target=change_often)
        thread.start()
        order = arrivals(cable.near, cable.far, 2000, every_s=0.0004)
        thread.join()
        assert sorted(order) == list(range(2000)), len(order)
        assert counted(cable.ip, B)["drops"] == 0


@virtual
def test_rate_and_delay_on_one_path_are_both_right() -> None:
    with cut_cable() as cable:
        with cable.far.namespace.entered(), IPRoute() as far:
            # the shaper beyond the netem, as on a switch: what far receives
            far.link("add", kind="ifb", ifname="shaper", index=9)
            eth0 = socket.if_nametoindex("eth0")
            far.tc("add", "ingress", eth0, 0xFFFF0000)
            redirect = {"kind": "mirred", "direction": "egress", "action": "redirect"}
            far.tc(
                "add-filter", "u32", eth0, parent=0xFFFF0000, prio=1, protocol=3,
                target=0x10001, keys=["0x0/0x0+0"], action=redirect | {"ifindex": 9},
            )  # fmt: skip
            far.link("set", index=9, state="up")
            links.shape(far, 9, "up0", 50.0, 1 << 20)
        for index in (A, B):
            impairments.impair(cable.ip, index, "up0", Link(50.0, 15.0))
        assert near(round_trip_ms(cable.near, cable.far), 30.0)
        flowed = flow(cable.near, cable.far, 5.0)
        print(f"50 Mbit/s and 2 x 15 ms: {flowed}")
        assert near(flowed.rate_mbit, 50 * 0.956, least=0), flowed
        assert counted(cable.ip, B)["drops"] == counted(cable.ip, A)["drops"] == 0


@virtual
def test_sources_are_as_far_as_each_is_said_to_be() -> None:
    with cut_cable("10.0.0.3", "10.0.0.4") as cable:
        close, distant, other = (cable.near._replace(address=f"10.0.0.{n}") for n in (1, 3, 4))
        classes = [
            per_source_netem.Sources([close.address], Link(RATE_MBIT, 10.0)),
            per_source_netem.Sources([distant.address], Link(RATE_MBIT, 40.0, loss=0.2)),
        ]
        per_source_netem.impair(cable.ip, B, "down1", classes)
        for number, asked in enumerate(classes):
            held = per_source_netem.read(cable.ip, B, "down1", number)
            assert held.agrees(impairments.intended(asked.link)), held
        assert 100 < len(arrivals(distant, cable.far, 200)) < 200  # 0.2 of them are lost
        assert per_source_netem.change(cable.ip, B, "down1", 1, Link(RATE_MBIT, 40.0))
        assert not per_source_netem.change(cable.ip, B, "down1", 1, Link(RATE_MBIT, 40.0))
        with datagrams(close, cable.far) as (busy, _):
            for source, delay_ms in ((close, 10.0), (distant, 40.0), (other, 0.0)):
                for _ in range(50):
                    busy.send(bytes(1000))
                taken_ms = round_trip_ms(source, cable.far)
                print(f"from {source.address} asked {delay_ms} ms, took {taken_ms:.2f} ms")
                assert near(taken_ms, delay_ms), (source.address, taken_ms)
        with pytest.raises(NetworkError, match="netem of down1 from 2: it is gone"):
            per_source_netem.read(cable.ip, B, "down1", 2)
