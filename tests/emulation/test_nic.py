"""A real interface is shaped towards the job's peers only, and is as it was afterwards."""

import socket

import pytest
from pyroute2 import IPRoute

from harness.emulation import links, nic
from harness.emulation.namespaces import Namespace
from harness.emulation.probe import PAYLOAD_SHARE, ProbePath, measure_in_turn
from tests.emulation import machines
from tests.emulation.inside import inside
from tests.emulation.machines import CONTROL_PORT, INTERFACE, QUEUE_BYTES, address
from tests.launching import until

FREE_MBIT = 400.0


def shape(ip: IPRoute, up_mbit: float = 40.0, down_mbit: float = 20.0) -> nic.Nic:
    found = nic.find(ip, INTERFACE)
    ifb = nic.prepare(ip, found, [address(1)], CONTROL_PORT)
    machines.shape(ip, found, ifb, up_mbit, down_mbit)
    return found


def goodput(sender: Namespace, receiver: Namespace, to: str, expected_mbit: float) -> float:
    path = ProbePath(sender, receiver, to, expected_mbit)
    return measure_in_turn([path], 0.5, QUEUE_BYTES)[0].measured_mbit


@inside
def test_both_ways_of_a_peer_are_shaped_and_others_are_not() -> None:
    with machines.pair() as (here, there):
        with here.entered(), IPRoute() as ip:
            shape(ip)
        up = goodput(here, there, address(1), 40.0)
        down = goodput(there, here, address(0), 20.0)
        assert 0.93 < up / (40.0 * PAYLOAD_SHARE) < 1.03, up
        assert 0.93 < down / (20.0 * PAYLOAD_SHARE) < 1.03, down
        assert goodput(here, there, address(1, net=1), FREE_MBIT) > FREE_MBIT
        assert goodput(there, here, address(0, net=1), FREE_MBIT) > FREE_MBIT


@inside
def test_what_the_machines_say_to_each_other_is_not_shaped() -> None:
    with machines.pair() as (here, there):
        with here.entered(), IPRoute() as ip:
            ways = (shape(ip).index, ip.link_lookup(kind="ifb")[0])
            before = [links.counters(ip)[index].bytes for index in ways]
            with there.entered():
                listener = socket.create_server((address(1), CONTROL_PORT))
            with socket.create_connection(listener.getsockname()) as near, listener:
                far, _ = listener.accept()
                near.sendall(bytes(1 << 16))
                far.sendall(bytes(1 << 16))
                for end in (near, far):
                    assert len(end.recv(1 << 16, socket.MSG_WAITALL)) == 1 << 16
                far.close()
            assert [links.counters(ip)[index].bytes for index in ways] == before


@inside
def test_what_shapes_what_comes_sends_nothing_of_its_own() -> None:
    with machines.pair() as (here, _), here.entered(), IPRoute() as ip:
        index = shape(ip).index
        [ifb] = ip.link_lookup(kind="ifb")
        assert list(ip.get_addr(index=index, family=socket.AF_INET6)), "others keep theirs"
        # from its own address it would ask for routers, some seconds later
        assert not list(ip.get_addr(index=ifb, family=socket.AF_INET6))


@inside
def test_a_rate_is_changed_and_read_back_on_both_ways() -> None:
    with machines.pair() as (here, _), here.entered(), IPRoute() as ip:
        found = shape(ip)
        ifb = ip.link_lookup(kind="ifb")[0]
        for index in (found.index, ifb):
            for rate_mbit in (5.0, 10_000.0):
                links.change_rate(ip, index, "a way", rate_mbit, nic.HANDLE)
                held = links.read_shape(ip, index, "a way", nic.HANDLE)
                assert held == links.Shape(rate_mbit, links.BURST_US, QUEUE_BYTES), held


@inside
def test_only_bytes_of_the_peers_are_counted() -> None:
    with machines.pair() as (here, there):
        with here.entered(), IPRoute() as ip:
            ways = (shape(ip).index, ip.link_lookup(kind="ifb")[0])
            goodput(here, there, address(1), 20.0)
            until(lambda: not any(c.backlog_bytes for c in links.counters(ip).values()), "drained")
            before = [links.counters(ip)[index].bytes for index in ways]
            assert before[0] > 1_000_000 and before[1] > 1000, before
            goodput(here, there, address(1, net=1), 20.0)
            assert [links.counters(ip)[index].bytes for index in ways] == before


@inside
def test_what_was_there_is_back_after_removal_and_removing_again_does_nothing() -> None:
    with machines.pair() as (here, _), here.entered(), IPRoute() as ip:
        before = machines.state()
        found = shape(ip)
        assert machines.state() != before
        removed = [piece.text for piece in nic.left(ip, found) if piece.remove() or True]
        assert len(removed) == 3, removed
        assert machines.state() == before
        assert nic.left(ip, found) == []


FOREIGN = {
    "root": ("root", "handle", "8001:", "tbf", "rate", "1gbit", "burst", "64k", "limit", "1m"),
    "ours without a ledger": ("root", "handle", "4d4e:", "htb"),
    "ingress": ("ingress",),
    "clsact": ("clsact",),
}


@inside
def test_a_qdisc_that_somebody_configured_is_refused_by_name_and_left_alone() -> None:
    for what in FOREIGN.values():
        with machines.pair() as (here, _), here.entered(), IPRoute() as ip:
            machines.tc("qdisc", "add", "dev", INTERFACE, *what)
            before = machines.state()
            kind = what[3] if len(what) > 1 else what[0]
            with pytest.raises(links.NetworkError, match=rf"shape eth1: .*{kind} .*tc qdisc del"):
                nic.require_free(ip, nic.find(ip, INTERFACE))
            assert machines.state() == before


@inside
def test_filters_that_somebody_added_since_survive_the_removal() -> None:
    with machines.pair() as (here, _), here.entered(), IPRoute() as ip:
        found = shape(ip)
        theirs = ("protocol", "ip", "prio", "7", "u32", "match", "u32", "0", "0", "flowid", "1:1")
        machines.tc("filter", "add", "dev", INTERFACE, "ingress", *theirs)
        for piece in nic.left(ip, found):
            piece.remove()
        assert nic.left(ip, found) == []
        filters = machines.tc("filter", "show", "dev", INTERFACE, "ingress")
        assert "pref 7 " in filters and str(nic.PREFERENCE) not in filters, filters


@inside
def test_interfaces_that_cannot_be_shaped_are_refused() -> None:
    with IPRoute() as ip:
        with pytest.raises(links.NetworkError, match="shape eth7: no such interface; there are lo"):
            nic.find(ip, "eth7")
        with pytest.raises(links.NetworkError, match="shape lo: it is a loopback"):
            nic.find(ip, "lo")


def test_ipv6_is_refused() -> None:
    with pytest.raises(ValueError, match="IPv4 only.*'fe80::1'"):
        nic.ipv4("network.master", "fe80::1")
