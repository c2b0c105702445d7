"""A shaped queue that a redirect fills is felt as a queue, not by the sender's own socket."""

import socket
import threading
import time

import pytest
from pyroute2 import IPRoute

from harness.emulation import links, veth
from harness.emulation.namespaces import Namespace
from harness.emulation.redirect import redirect
from tests.emulation.inside import inside

PORT, SHAPER = 100, 101
RATE_MBIT, QUEUE_BYTES = 50.0, 400_000  # 64 ms


def most_backlog_bytes(free: bool) -> int:
    """The longest that a cubic flow makes the queue it enters by a redirect, in a second."""
    there = Namespace.create()
    with IPRoute() as ip:
        peer = {"ifname": "eth0", "net_ns_fd": there.descriptor}
        ip.link("add", kind="veth", ifname="port", index=PORT, peer=peer)
        ip.link("add", kind="ifb", ifname="shaper", index=SHAPER)
        redirect(ip, PORT, SHAPER, "up0", free)
        links.shape(ip, SHAPER, "up0", RATE_MBIT, QUEUE_BYTES)
        for index in (1, PORT, SHAPER):
            ip.link("set", index=index, state="up")
        ip.addr("add", index=PORT, address="10.0.0.1", prefixlen=24)
        with there.entered(), IPRoute() as inside_it:
            eth0 = socket.if_nametoindex("eth0")
            inside_it.addr("add", index=eth0, address="10.0.0.2", prefixlen=24)
            inside_it.link("set", index=eth0, state="up")
        veth.await_carriers(ip)
        most = _flow(ip, there)
        ip.link("del", index=PORT)
        ip.link("del", index=SHAPER)
    there.close()
    return most


def _flow(ip: IPRoute, sender: Namespace) -> int:
    listener = socket.create_server(("10.0.0.1", 0))
    with sender.entered():
        here = socket.socket()
    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    here.connect(listener.getsockname())
    there, _ = listener.accept()

    def drain() -> None:
        buffer = bytearray(1 << 18)
        while there.recv_into(buffer):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    most, end = 0, time.monotonic() + 1.5
    with here, there, listener:
        while time.monotonic() < end:
            here.send(bytes(1 << 16))
            most = max(most, links.counters(ip)[SHAPER].backlog_bytes)
        here.shutdown(socket.SHUT_WR)
        thread.join()
    return most


@inside
def test_a_flow_fills_the_queue_only_when_it_is_set_free_of_its_socket() -> None:
    held, freed = (most_backlog_bytes(free) for free in (False, True))
    assert held < QUEUE_BYTES / 2 < 0.9 * QUEUE_BYTES < freed <= QUEUE_BYTES, (held, freed)


@inside
def test_a_redirect_that_is_refused_names_its_link() -> None:
    with IPRoute() as ip, pytest.raises(links.NetworkError, match="redirect what enters up3: "):
        redirect(ip, 4711, 1, "up3")
