"""A shaped link keeps its queue, holds what it was told, and refuses what it cannot hold."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyroute2 import IPRoute

from harness.emulation import batch, links, tcp_settings
from harness.emulation.links import Shaper
from tests.emulation.inside import inside

INDEX, QUEUE_BYTES = 100, 300_000
UP0 = Shaper("up0", INDEX)
FULL_MBIT = 2**32 / 125_000  # 34.36 Gbit/s: 32 bits hold no more bytes/s
DATAGRAM_BYTES, HEADERS_BYTES = 1400, 14 + 20 + 8


@contextmanager
def shaped_link(rate_mbit: float) -> Iterator[IPRoute]:
    """A veth pair whose near end is shaped; nobody is at 10.0.0.2, where packets may be sent."""
    tcp_settings.set_sysctls(tcp_settings.PINNED)  # nothing but what a test sends
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
        around = (FULL_MBIT - 1 / 125_000, FULL_MBIT, FULL_MBIT + 1 / 125_000)
        for rate_mbit in (0.001, 0.1, 33.333, 10_000.0, *around, 40_000.0, 400_000.0, 5.0):
            links.change_rate(ip, INDEX, "up0", rate_mbit)
            held = links.read_shape(ip, INDEX, "up0")
            rate = links.rate_bytes(rate_mbit) / 125_000
            assert held == links.Shape(rate, links.BURST_US, QUEUE_BYTES), held
            assert links.change_rates(ip, [(UP0, rate_mbit)]) == [rate]
            assert listed(ip) == links.rate_bytes(rate_mbit)


def listed(ip: IPRoute) -> int:
    """Bytes/s of the class, listed and decoded by pyroute2."""
    [found] = ip.get_classes(INDEX)
    options = found.get_attr("TCA_OPTIONS")
    return options.get_attr("TCA_HTB_RATE64") or options.get_attr("TCA_HTB_PARMS")["rate"]


@inside
def test_many_changes_at_once_are_made_and_answered_in_order() -> None:
    with shaped_link(10.0) as ip:
        rates = [10.0 + number for number in range(2 * batch.MOST_AT_ONCE + 3)]
        assert links.change_rates(ip, [(UP0, rate) for rate in rates]) == rates
        assert listed(ip) == links.rate_bytes(rates[-1])
        assert links.change_rates(ip, []) == []


@inside
def test_one_that_is_refused_is_named_and_the_others_are_changed() -> None:
    with shaped_link(10.0) as ip:
        ip.link("add", kind="ifb", ifname="other", index=INDEX + 1)
        links.shape(ip, INDEX + 1, "up2", 10.0, QUEUE_BYTES)
        wanted = [(UP0, 20.0), (Shaper("up1", 4711), 21.0), (Shaper("up2", INDEX + 1), 22.0)]
        with pytest.raises(links.NetworkError, match="^change up1 to 21.0 Mbit/s: [^;]*$"):
            links.change_rates(ip, wanted)
        assert links.read_rate(ip, INDEX, "up0")[0] == 20.0
        assert links.read_rate(ip, INDEX + 1, "up2")[0] == 22.0
        with pytest.raises(ValueError, match="got -1"):  # before anything is sent
            links.change_rates(ip, [(UP0, 30.0), (UP0, -1.0)])
        assert links.read_rate(ip, INDEX, "up0")[0] == 20.0


@inside
def test_what_others_change_is_read_back() -> None:
    with shaped_link(10.0) as ip:
        changed = "tc class change dev near classid 1:1 htb rate 7mbit burst 100k cburst 100k"
        subprocess.run(changed.split(), check=True)
        held = links.read_shape(ip, INDEX, "up0")
        assert held.rate_mbit == 7.0 and held.burst_us != links.BURST_US, held
        subprocess.run("tc qdisc replace dev near parent 1:1 pfifo".split(), check=True)
        with pytest.raises(links.NetworkError, match="queue of up0: it is gone or of another"):
            links.read_shape(ip, INDEX, "up0")
        assert INDEX not in links.counters(ip)


@contextmanager
def backlogged() -> Iterator[list[int]]:
    """Datagrams that never let the link idle and never fill its queue; yields how many, so far.

    The socket's buffer holds fewer bytes than the queue, and sending waits for room in it.
    """
    sent, ending = [0], threading.Event()
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES // 2)

    def send() -> None:
        while not ending.is_set():
            sender.sendto(bytes(DATAGRAM_BYTES), ("10.0.0.2", 9))
            sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        ending.set()
        thread.join()
        sender.close()


def carried(ip: IPRoute, rates_mbit: list[float], every_s: float) -> tuple[int, float, float]:
    """Bytes that pass while the link is given these rates, and the fewest and most allowed.

    A rate is in force from some moment of the call that sets it on, however long that took.
    """
    fewest = most = 0.0
    links.change_rates(ip, [(UP0, rates_mbit[0])])
    before, since_s = links.counters(ip)[INDEX].bytes, time.monotonic()
    next_s = since_s
    for rate_mbit, following in zip(rates_mbit, [*rates_mbit[1:], rates_mbit[0]], strict=True):
        next_s += every_s
        time.sleep(max(0.0, next_s - time.monotonic()))  # the pace is what is asked for
        asked_s = time.monotonic()
        links.change_rates(ip, [(UP0, following)])
        now_s = time.monotonic()
        sure = rate_mbit * (asked_s - since_s)
        fewest += 125_000 * (sure + min(rate_mbit, following) * (now_s - asked_s))
        most += 125_000 * (sure + max(rate_mbit, following) * (now_s - asked_s))
        since_s = now_s
    passed = links.counters(ip)[INDEX].bytes - before
    return passed, fewest, most + 125_000 * rates_mbit[0] * (time.monotonic() - since_s)


def check_carried(ip: IPRoute, rates_mbit: list[float], every_s: float, off: float) -> None:
    """What passes is allowed, or beside it by less than the share `off`, in (0, 1).

    The machine's other work keeps the kernel from sending for a while, and never makes it send
    more. So too much fails at once, and too little where five tries had it.
    """
    tries = []
    for _ in range(5):
        passed, fewest, most = carried(ip, rates_mbit, every_s)
        tries.append((passed, fewest, most))
        assert passed < (1 + off) * most, tries
        if passed > (1 - off) * fewest:
            return
    raise AssertionError(tries)


@inside
def test_changes_every_100_ms_give_the_mean_rate_and_drop_nothing() -> None:
    with shaped_link(20.0) as ip:
        with backlogged() as sent:
            wait_until_queued(ip)
            check_carried(ip, [4.0, 20.0, 12.0, 2.0, 8.0] * 6, 0.1, off=0.01)
        after = links.counters(ip)[INDEX]
        assert after.drops == 0, after
        entered = sent[0] * (DATAGRAM_BYTES + HEADERS_BYTES)
        assert after.bytes + after.backlog_bytes == entered, (after, entered)


@inside
def test_changes_without_end_gain_no_tokens() -> None:
    """A tbf, whose bucket every change fills, would carry a burst of 2 ms more every 4 ms."""
    with shaped_link(20.0) as ip, backlogged():
        wait_until_queued(ip)
        check_carried(ip, [20.0] * 250, 0.004, off=0.02)


def wait_until_queued(ip: IPRoute) -> None:
    """The burst of an idle link has been used."""
    end_s = time.monotonic() + 10
    while links.counters(ip)[INDEX].backlog_bytes < QUEUE_BYTES // 10:
        assert time.monotonic() < end_s, links.counters(ip)


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
