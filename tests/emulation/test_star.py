"""A star carries what it was told, says so, notices changes, and leaves nothing behind."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
from pyroute2 import IPRoute

from harness.emulation import links, probe, veth
from harness.emulation.dumbbell import Dumbbell
from harness.emulation.namespaces import Namespace
from harness.emulation.network import Network
from harness.emulation.probe import ProbePath
from harness.emulation.star import Star
from tests.emulation.inside import Flat, inside, refusal, start


def interfaces() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


def shaper(network: Network, name: str) -> int:
    """Index of the interface whose egress shapes direction `name`."""
    [found] = [d.place.shaper for d in network.directions if d.name == name]
    return found


@inside
def test_eight_slow_links_are_measured_right() -> None:
    with Star(probe_s=0.3).up(8, Flat(10.0), 1.0) as network:
        probes = network.probe()
        assert [p.link for p in probes[:4]] == ["up0", "down0", "up1", "down1"], probes
        assert len(probes) == 16 and all(p.ok for p in probes), probes
        assert network.verify() == [], network.verify()


@inside
def test_a_cable_that_is_up_carries_also_on_a_busy_machine() -> None:
    with ExitStack() as held, IPRoute() as ip:
        for _ in range(os.cpu_count() or 1):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            held.callback(process.wait)
            held.callback(process.kill)
        for number in range(20):
            names = (f"a{number}", f"b{number}")
            ip.link("add", kind="veth", ifname=names[0], peer=names[1])
            for index in map(socket.if_nametoindex, names):
                ip.link("set", index=index, state="up")
            veth.await_carriers(ip)
            together = {link.get_attr("IFLA_IFNAME"): link for link in ip.get_links()}
            states = {name: together[name].get_attr("IFLA_OPERSTATE") for name in names}
            assert set(states.values()) == {"UP"}, states
        ip.link("set", index=socket.if_nametoindex("a7"), state="down")
        veth.CARRIER_S = 0.1  # of this law's process alone
        with pytest.raises(links.NetworkError, match="b7 is LOWERLAYERDOWN after 0.1 s; it must"):
            veth.await_carriers(ip)


@inside
def test_rates_are_divided_by_dilation_and_reported_emulated() -> None:
    with Star(probe_s=0.3).up(2, Flat(400.0), 4.0) as network:
        assert network.describe()["links"]["up1"]["rate_mbit"] == 100.0
        probes = network.probe()
        assert all(p.planned_mbit == 400.0 and p.ok for p in probes), probes


@inside
def test_a_link_that_missed_is_probed_again_and_told_when_it_stays_wrong() -> None:
    with Star().up(2, Flat(100.0), 1.0) as network:
        ip, queue_bytes = network._ip, network.options["queue_bytes"]
        paths = [ProbePath(*d.ends, 100.0) for d in network.directions if "up" in d.name]
        asked = 0

        def right_at_the_third() -> probe.Probe:
            nonlocal asked
            asked += 1
            if asked == 3:
                links.change_rate(ip, shaper(network, "up0"), "up0", 100.0)
            return probe.judge("up0", 100.0, probe.measure(paths[:1], 0.1, queue_bytes)[0])

        links.change_rate(ip, shaper(network, "up0"), "up0", 50.0)
        found = probe.tried(right_at_the_third)
        assert found.ok and found.tries == asked >= 3, (found, asked)  # busy machines take more

        for name in ("up0", "up1"):
            links.change_rate(ip, shaper(network, name), name, 50.0)
        with mock.patch.object(probe, "measure", wraps=probe.measure) as measure:
            probes = probe.measure_in_turn(paths, 0.1, queue_bytes)
        assert max(each.measured_mbit for each in probes) < 60, probes
        assert [each.tries for each in probes] == [1 + probe.TRIES, 2], probes
        at_once = [len(call.args[0]) for call in measure.call_args_list]
        assert at_once == [2] + [1] * (probe.TRIES + 1), at_once  # five of up0, one of up1


@inside
def test_a_link_that_somebody_slowed_fails_the_probe_and_the_read_back() -> None:
    with Star(probe_s=0.2).up(2, Flat(100.0), 1.0) as network:
        links.change_rate(network._ip, shaper(network, "down1"), "down1", 50.0)
        assert [p.link for p in network.probe() if not p.ok] == ["down1"]
        assert [problem.split()[0] for problem in network.verify()] == ["down1"]
        network._ip.tc("del", "htb", shaper(network, "up0"), links.ROOT)
        assert "up0: it is gone" in network.verify()[0], network.verify()


@inside
def test_bytes_count_what_passed_each_link() -> None:
    with Star().up(3, Flat(100.0), 1.0) as network:
        before = network.bytes()
        with network.entered(0):
            sender = socket.socket(type=socket.SOCK_DGRAM)
        for _ in range(10):
            sender.sendto(bytes(1000), (network.addresses[1], 9))
        wire = 10 * (1000 + 28 + 14)
        passed = {name: count - before[name] for name, count in network.bytes().items()}
        assert wire <= passed["up0"] < 1.5 * wire and wire <= passed["down1"] < 1.5 * wire, passed
        assert passed["up2"] == passed["down2"] == passed["down0"] - passed["up1"] == 0, passed


@inside
def test_every_flow_runs_the_congestion_control_asked_for() -> None:
    with Star(congestion_control="reno").up(2, Flat(100.0), 1.0) as network:
        assert network.describe()["congestion_control"] == "reno"
        with network.entered(0):
            listener = socket.create_server((network.addresses[0], 0))
        with network.entered(1):
            there = socket.create_connection(listener.getsockname())
        for end in (there, listener.accept()[0]):
            name = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert name.rstrip(b"\0") == b"reno", name


@inside
def test_a_short_message_takes_what_its_bytes_need_on_a_slow_link() -> None:
    rate_mbit, nbytes = 8.0, 12_000  # within TCP's first window, so that nothing else is waited for
    with Star().up(2, Flat(rate_mbit), 1.0) as network:
        assert network.describe()["packet_bytes"] == veth.MTU_BYTES
        with network.entered(0):
            listener = socket.create_server((network.addresses[0], 0))
        with network.entered(1):
            there = socket.create_connection(listener.getsockname())
        here, _ = listener.accept()
        for _ in range(5):
            time.sleep(0.3)  # the link is idle, so a packet of 64 KB would pass at once
            begin = time.monotonic()
            there.sendall(bytes(nbytes))
            left = nbytes
            while left:
                left -= len(here.recv(left))
            took_s, least_s = time.monotonic() - begin, nbytes / (rate_mbit * 125_000)
            assert took_s > least_s - links.BURST_US / 1e6, (took_s, least_s)


@pytest.mark.parametrize(("offload", "rate_mbit", "dilation", "expected"), [
    ("auto", 800, 1.0, None),
    ("auto", 100, 1.0, 12_500),
    ("auto", 100, 0.5, 25_000),
    ("auto", 5, 1.0, veth.MTU_BYTES),
    ("keep", 5, 1.0, None),
])  # fmt: skip
def test_packets_are_a_millisecond_of_their_link_at_most(offload, rate_mbit, dilation, expected):
    star = Star(offload=offload)
    assert star.packet_bytes(Flat(rate_mbit), dilation) == expected
    dumbbell = Dumbbell(offload=offload, access=Flat(800))
    assert dumbbell.packet_bytes(Flat(rate_mbit), dilation) == expected
    dumbbell = Dumbbell(offload=offload, access=Flat(rate_mbit))
    assert dumbbell.packet_bytes(Flat(800), dilation) == expected


@inside
def test_what_cannot_be_met_is_refused() -> None:
    with pytest.raises(ValueError, match="congestion_control must be one of .*got 'nosuch'"):
        with Star(congestion_control="nosuch").up(2, Flat(100.0), 1.0):
            pass
    with pytest.raises(ValueError, match="offload must be auto or keep or off, got 'never'"):
        with Star(offload="never").up(2, Flat(100.0), 1.0):
            pass
    with pytest.raises(ValueError, match=r"Mbit/s, got 0.0"):
        with Star().up(2, Flat(0.0), 1.0):
            pass
    with pytest.raises(ValueError, match="dilation must be > 0, got 0"):
        with Star().up(2, Flat(1.0), 0.0):
            pass


@inside
def test_only_an_empty_namespace_is_taken() -> None:
    with IPRoute() as ip:
        ip.link("add", kind="ifb", ifname="nic0", index=7)
        ip.link("set", index=7, state="up")
        with pytest.raises(links.NetworkError, match="interface nic0 is up here"):
            with Star().up(2, Flat(100.0), 1.0):
                pass
        assert interfaces() == ["lo", "nic0"], interfaces()


@inside
def test_down_leaves_nothing_even_after_an_error() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(KeyError, match="of the run"):
            with Star().up(4, Flat(100.0), 1.0):
                raise KeyError("of the run")
        assert interfaces() == ["lo"], interfaces()
    assert len(os.listdir("/proc/self/fd")) == descriptors


@inside
def test_entering_moves_only_this_thread_and_only_for_a_while() -> None:
    own = os.readlink("/proc/thread-self/ns/net")
    there = Namespace.create()
    with there.entered():
        assert os.readlink("/proc/thread-self/ns/net") != own
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", 9))  # its loopback is down: it is another one
    assert os.readlink("/proc/thread-self/ns/net") == own
    there.close()


def namespaces_in_use() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(process))
        except OSError:
            continue  # it ended, or is another user's
    return found


@pytest.mark.network
def test_a_killed_run_leaves_no_namespace_and_no_interface() -> None:
    if refusal():
        pytest.skip(f"namespaces are refused here: {refusal()}")
    before = interfaces()
    die = (
        "import os, signal\n"
        "from harness.emulation.star import Star\n"
        "from tests.emulation.inside import Flat\n"
        "with Star().up(4, Flat(100.0), 1.0) as network:\n"
        "    print(os.readlink('/proc/self/ns/net'), flush=True)\n"
        "    os._exit(9)\n"
    )
    done = start(sys.executable, ["-c", die])
    assert done.returncode == 9, done.stderr
    assert done.stdout.strip() not in namespaces_in_use()
    assert interfaces() == before
