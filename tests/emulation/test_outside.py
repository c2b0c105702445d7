"""Whatever somebody else does to a shaped link while a run goes on is seen, named and dated."""

import fcntl
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyroute2 import IPRoute

from harness.emulation import links
from harness.emulation.direction import Direction
from harness.emulation.dumbbell import Dumbbell
from harness.emulation.monitor import LOST, Monitor, OutsideChange
from harness.emulation.namespaces import Namespace
from harness.emulation.network import Network
from harness.emulation.profile_player import Player
from harness.emulation.star import Star
from harness.records import run_directory
from harness.runner import validity_checks
from profiles.base import Extremes, Link, Way
from tests.emulation.inside import Flat, inside
from tests.emulation.test_profile_player import HandClock, read_links, wait_for

PORT, UP, SIOCSIFFLAGS = 100, 1, 0x8914
DOWN = "its interface was down"


class Alternates(Flat):
    """Two rates, in turn every tenth of a second."""

    def link(self, time_s: float, node: int, way: Way) -> Link:
        return Link(50.0 if int(time_s * 10 + 1e-6) % 2 else 100.0)

    def extremes(self) -> Extremes:
        return Extremes(50.0, 100.0)


class RealClock(HandClock):
    """Begins when it is made."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self._began_s = time.monotonic()

    def time_s(self) -> float:
        return time.monotonic() - self._began_s


@contextmanager
def played() -> Iterator[tuple[Network, Path]]:
    """A network at work, sampled every 20 ms, and its records."""
    with (
        TemporaryDirectory() as folder,
        Star(update_s=0.05, sample_s=0.02).up(2, Alternates(100.0), 1.0) as network,
    ):
        run_dir = Path(folder)
        run_directory.Table(run_dir, "links.csv").header()
        player = Player(network, RealClock(), run_dir, run_directory.Events(run_dir))
        wait_for(lambda: len(read_links(run_dir)) > 8)
        yield network, run_dir
        player.stop()


def told(run_dir: Path) -> list[str]:
    return validity_checks.of_changes(run_directory.read_events(run_dir))


def told_after(meddle: Callable[[IPRoute, Direction, Direction], None]) -> list[str]:
    """Reasons, once somebody has been at `up0` and `down0`."""
    with played() as (network, run_dir), IPRoute() as other:
        meddle(other, *network.directions[:2])
        wait_for(lambda: told(run_dir))
        seen = len(read_links(run_dir))
        wait_for(lambda: len(read_links(run_dir)) > seen + 8)
        return told(run_dir)


@inside
def test_what_the_player_does_itself_is_nobody_elses() -> None:
    with played() as (_, run_dir):
        wait_for(lambda: {row["applied_mbit"] for row in read_links(run_dir)} == {"50.0", "100.0"})
        assert told(run_dir) == []


@inside
def test_a_rate_changed_from_outside_and_put_back_is_told() -> None:
    def meddle(ip: IPRoute, up0: Direction, down0: Direction) -> None:
        set_mbit = up0.applied_mbit
        links.change_rate(ip, up0.place.shaper, "up0", 7.0)
        links.change_rate(ip, up0.place.shaper, "up0", set_mbit)

    [reason] = told_after(meddle)
    assert reason.startswith("link up0 was changed from outside at "), reason
    assert reason.endswith(" s: its class was changed"), reason


@inside
def test_a_rate_that_is_not_the_one_set_is_in_links_csv_as_the_kernel_holds_it() -> None:
    with played() as (network, run_dir), IPRoute() as other:
        held = {"7.0"}
        while held - {row["applied_mbit"] for row in read_links(run_dir)}:
            links.change_rate(other, network.directions[1].place.shaper, "down0", 7.0)
            time.sleep(0.005)
        reasons = told(run_dir)
    assert any("link down0" in each and "held 7 Mbit/s" in each for each in reasons), reasons
    assert not any("up0" in reason for reason in reasons), reasons


@inside
def test_a_link_that_is_down_for_a_moment_is_told_wherever_it_is_taken_down() -> None:
    def uplink(ip: IPRoute, up0: Direction, down0: Direction) -> None:
        for state in ("down", "up"):
            ip.link("set", index=up0.place.shaper, state=state)

    [reason] = told_after(uplink)
    assert "link up0" in reason and "its interface was down" in reason, reason
    with played() as (network, run_dir):
        with network.entered(0), IPRoute() as there:
            for state in ("down", "up"):
                there.link("set", index=socket.if_nametoindex("eth0"), state=state)
        wait_for(lambda: told(run_dir))
        [reason] = told(run_dir)
        assert "link down0" in reason and "its interface was down" in reason, reason


@inside
def test_a_link_that_is_up_again_before_the_kernel_tells_is_told() -> None:
    there = Namespace.create()
    with IPRoute() as ip:
        peer = {"ifname": "eth0", "net_ns_fd": there.descriptor}
        ip.link("add", kind="veth", ifname="port", index=PORT, peer=peer)
        ip.link("set", index=PORT, state="up")
        with there.entered():
            ends = socket.socket(type=socket.SOCK_DGRAM)
        with ends, Monitor("", {PORT: "up0"}, ip) as monitor:
            flip(ends, "eth0", UP)
            for _ in range(50):
                wait_for(lambda: is_up(ip, PORT) and not monitor.changes())
                for flags in (0, UP):
                    flip(ends, "eth0", flags)
                wait_for(lambda: monitor.changes() == [OutsideChange("up0", DOWN)])
    there.close()


def flip(at: socket.socket, name: str, flags: int) -> None:
    """Set the flags of an interface where the socket is; soon done, unlike by netlink."""
    fcntl.ioctl(at, SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), flags))


def is_up(ip: IPRoute, index: int) -> bool:
    [link] = ip.get_links(index)
    return link["state"] == "up" and bool(link.get_attr("IFLA_CARRIER"))


KINDS = {  # every qdisc that this kernel may have, as tc adds it
    "tbf": "root tbf rate 20mbit burst 20k limit 200k", "htb": "root htb default 1",
    "pfifo": "root pfifo limit 1", "bfifo": "root bfifo limit 3000",
    "pfifo_fast": "root pfifo_fast", "pfifo_head_drop": "root pfifo_head_drop limit 1",
    "netem": "root netem delay 1ms", "fq": "root fq", "fq_codel": "root fq_codel",
    "sfq": "root sfq", "prio": "root prio", "ingress": "ingress", "clsact": "clsact",
}  # fmt: skip


def tc(words: str) -> bool:
    return subprocess.run(["tc", *words.split()], capture_output=True).returncode == 0


def kinds_at(network: Network, place: str, name: str, monitors: list[Monitor]) -> list[str]:
    """Put every kind of qdisc at an interface for a moment; each is told, and read back."""
    inside = network._ends[place].entered if place in network._ends else nullcontext
    tried = []
    for kind, words in KINDS.items():
        with inside():
            if not tc(f"qdisc add dev {name} {words}"):
                continue
        [problem] = network.verify()
        with inside():
            assert tc(f"qdisc del dev {name} {words.split()[0]}"), (name, words)
        assert f"interface {name} of {place} has qdisc {kind} " in problem, problem
        told = [change for monitor in monitors for change in monitor.changes()]
        whats = [f"a qdisc was set ({kind})", f"a qdisc was removed ({kind})"]
        assert told == [OutsideChange(f"{name} of {place}", what) for what in whats]
        tried.append(kind)
    return tried


@inside
def test_a_qdisc_of_any_kind_at_either_end_of_a_cable_is_told_and_read_back() -> None:
    """Of nodes, of ends of competing flows, and of the switch, where some shape nothing."""
    with (
        Dumbbell(left=1).up(2, Flat(100.0), 1.0) as network,
        network.watched(network._ip) as monitors,
    ):
        assert network.verify() == []
        assert len(kinds_at(network, "the switch", "p1", monitors)) > 5, "a kernel with hardly any"
        places = ("the switch", "node 0", "node 1", "host 1")
        for place, name in product(places, ("eth0", "lo")):
            if (place, name) != ("the switch", "eth0"):
                assert "tbf" in kinds_at(network, place, name, monitors)
        assert network.verify() == []


@inside
def test_a_node_that_is_made_slower_without_a_qdisc_is_read_back() -> None:
    with Star().up(2, Flat(100.0), 1.0) as network:
        with network.entered(1), IPRoute() as there:
            there.link("set", index=socket.if_nametoindex("eth0"), mtu=600)
            Path("/proc/sys/net/ipv4/tcp_wmem").write_text("4096 4096 4096")
        assert network.verify() == [
            "mtu_bytes of interface eth0 of node 1 is 600, was 1500",
            "sysctl net/ipv4/tcp_wmem of node 1 is 4096 4096 4096, was 4096 16384 4194304",
        ]


@inside
def test_so_many_changes_that_the_kernel_forgets_some_are_told() -> None:
    with Star().up(1, Flat(100.0), 1.0) as network, IPRoute() as ip:
        with network.watched(ip) as monitors:
            with network.entered(0):
                text = "qdisc add dev lo root pfifo\nqdisc del dev lo root\n" * 8000
                subprocess.run(["tc", "-batch", "-"], input=text, text=True, check=True)
            told = [change for monitor in monitors for change in monitor.changes()]
        assert OutsideChange("node 0", LOST) in told


def error_without(handle: int, parent: int) -> str:
    """What a player fails with, once somebody has removed a qdisc of `up0`."""
    with (
        TemporaryDirectory() as folder,
        Star(sample_s=0.02).up(1, Flat(100.0), 1.0) as network,
        IPRoute() as other,
    ):
        run_directory.Table(Path(folder), "links.csv").header()
        player = Player(network, RealClock(), Path(folder), run_directory.Events(Path(folder)))
        other.tc("del", index=network.directions[0].place.shaper, handle=handle, parent=parent)
        wait_for(lambda: player.error is not None)
        with pytest.raises(links.NetworkError) as raised:
            player.stop()
        return str(raised.value)


@inside
def test_a_shaper_or_its_queue_that_is_removed_ends_the_run_and_is_named() -> None:
    for handle, parent in ((links.LEAF, links.ROOT + 1), (links.ROOT, 0xFFFFFFFF)):
        said = error_without(handle, parent)
        assert said.startswith("up0 is no longer shaped: "), said
