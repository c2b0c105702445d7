"""A shaped link keeps its queue, holds what it was told, and refuses what it cannot hold."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyroute2 import IPRoute

from harness.network import links
from tests.network.inside import inside

INDEX, QUEUE_BYTES = 100, 300_000


@contextmanager
def shaped_link(rate_mbit: float) -> Iterator[IPRoute]:
    """A veth pair whose near end is shaped."""
    with IPRoute() as ip:
        ip.link("add", kind="veth", ifname="near", index=INDEX, peer={"ifname": "far"})
        ip.link("set", index=socket.if_nametoindex("far"), state="up")
        ip.addr("add", index=INDEX, address="10.0.0.1", prefixlen=24)
        ip.link("set", index=INDEX, state="up")
        mac = "02:00:00:00:00:02"
        ip.neigh("add", dst="10.0.0.2", lladdr=mac, ifindex=INDEX, state=128)
        links.shape(ip, INDEX, "up0", rate_mbit, QUEUE_BYTES)
        yield ip


@pytest.mark.parametrize("rate_mbit", [0.0, -5.0, 1e6, float("nan"), float("inf")])
def test_bad_rates_are_refused_with_value_and_range(rate_mbit: float) -> None:
    with pytest.raises(ValueError, match=r"in \[0.001, 400000\] Mbit/s, got"):
        links.rate_bytes(rate_mbit)


@inside
def test_every_rate_is_read_back_as_set_with_the_same_burst() -> None:
    with shaped_link(10.0) as ip:
        for rate_mbit in (0.001, 0.1, 33.333, 10_000.0, 40_000.0, 400_000.0, 5.0):
            links.change_rate(ip, INDEX, "up0", rate_mbit)
            held = links.read_shape(ip, INDEX, "up0")
            rate = links.rate_bytes(rate_mbit) / 125_000
            assert held == links.Shape(rate, links.BURST_US, QUEUE_BYTES), held


@inside
def test_a_change_keeps_what_is_queued() -> None:
    with shaped_link(0.01) as ip, socket.socket(type=socket.SOCK_DGRAM) as sender:
        for _ in range(20):
            sender.sendto(bytes(1000), ("10.0.0.2", 9))
        before = links.counters(ip)[INDEX]
        for rate_mbit in (0.02, 0.005, 0.01):
            links.change_rate(ip, INDEX, "up0", rate_mbit)
        after = links.counters(ip)[INDEX]
        assert before.backlog_bytes > 10_000, before
        passed = after.bytes - before.bytes
        assert after.backlog_bytes + passed == before.backlog_bytes, (before, after)
        assert after.drops == 0, after


@inside
def test_a_full_queue_drops_and_counts() -> None:
    with shaped_link(0.01) as ip, socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        for _ in range(400):
            sender.sendto(bytes(1000), ("10.0.0.2", 9))
        counted = links.counters(ip)[INDEX]
        assert counted.drops > 0, counted
        assert counted.backlog_bytes <= QUEUE_BYTES, counted


@inside
def test_an_error_names_attempt_and_object() -> None:
    with IPRoute() as ip:
        with pytest.raises(links.NetworkError, match=r"change up3 to 10.0 Mbit/s: .*error"):
            links.change_rate(ip, 4711, "up3", 10.0)
