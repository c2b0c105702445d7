"""The emulated network against its targets: how fast it is built, how exact, how soon it changes.

    python benchmarks/network.py [--quick] [--only scale rates changes delays]

Runs itself again in namespaces of its own, with or without root. Exits with 1 when a target is
missed. Times are of this machine as busy as it is, so the load is printed too.
"""

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import MSG_TRUNC, socket
from tempfile import TemporaryDirectory
from typing import NamedTuple

from operations import counted, mininet_change_processes, mininet_processes

from harness.clock import Clock
from harness.emulation import direction, probe
from harness.emulation.dumbbell import Dumbbell
from harness.emulation.network import Network
from harness.emulation.profile_player import Player
from harness.emulation.star import Star
from harness.records.run_directory import Events, Table, read_events
from profiles.base import Profile
from profiles.fluctuating import Fluctuating
from profiles.square import Square
from profiles.static import Static

SPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
RATES_MBIT = (10, 50, 200, 800, 1000, 2000, 5000, 10_000)
MANY, FEW = 64, 8  # nodes
UPDATE_S = 0.1
SLOW_MBIT, FAST_MBIT = 10.0, 100.0
# of a sender: more than any hiccup of this machine uses up, 24 ms at FAST_MBIT, and the time-out of
# TCP is longer than the round trip becomes at SLOW_MBIT
WINDOW_BYTES = 300_000
# A packet that has begun when the rate rises is finished at the old rate, as on any link. TCP hands
# over packets of 1 ms of its mean rate: where that is slow they take longer, and the rise waits.
FOLLOWED = {"off": (0.99, 30.0), "auto": (0.97, 10.0)}  # packets of one MTU, of many: target, s
CHANGES = {
    "alternating": Square(high_mbit=FAST_MBIT, low_mbit=SLOW_MBIT, period_s=2 * UPDATE_S),
    "random": Fluctuating(
        low_mbit=SLOW_MBIT, high_mbit=FAST_MBIT, min_s=UPDATE_S, max_s=UPDATE_S, shared=True
    ),
}


class Row(NamedTuple):
    """One line of the table; a figure without bounds is for the reader."""

    what: str
    found: float
    least: float | None = None
    most: float | None = None

    @property
    def ok(self) -> bool:
        above = self.least is None or self.found >= self.least
        return above and (self.most is None or self.found <= self.most)

    def __str__(self) -> str:
        limits = ((">=", self.least), ("<=", self.most))
        bounds = [f"{sign} {limit:g}" for sign, limit in limits if limit is not None]
        mark = "" if self.ok else "  MISSED"
        return f"{self.what:62} {self.found:10.4g}   {', '.join(bounds)}{mark}"


def scale(quick: bool) -> Iterator[Row]:
    """A star of many nodes: seconds up and down, and what it asks of the system."""
    profile = Fluctuating(low_mbit=10, high_mbit=1000, min_s=0.02, max_s=0.09)
    ups, downs = [], []
    for _ in range(1 if quick else 3):
        begin = time.monotonic()
        with counted() as count, Star().up(MANY, profile, 1.0) as network:
            ups.append(time.monotonic() - begin)
            built, applied_ms = count.all(), _applied_ms(network)
            one_moment = count.all()
            assert network.verify() == []
            begin = time.monotonic()
        downs.append(time.monotonic() - begin)
    yield Row(f"star of {MANY}: up, s", statistics.median(ups), most=3)
    yield Row(f"star of {MANY}: down, s", statistics.median(downs), most=1)
    yield Row(f"star of {MANY}: netlink requests to bring it up", built.requests)
    yield Row(f"star of {MANY}: processes started for it", built.processes, most=0)
    yield Row("  mininet's way, counted not run: processes", mininet_processes(MANY))
    yield Row(f"{2 * MANY} directions changed and read back, ms", applied_ms, most=10)
    yield Row("  system calls that sent it, of 64 changes each", one_moment.calls - built.calls)
    changed = mininet_change_processes(2 * MANY)
    yield Row("  mininet's way, counted not run: processes, queues lost", changed)


def _applied_ms(network: Network) -> float:
    """One moment of the plan, at which every direction changes."""
    wanted = [(each, each.conditions(100.0)) for each in network.directions]
    begin = time.monotonic()
    changed = direction.apply(network._ip, wanted)
    took_ms = 1000 * (time.monotonic() - begin)
    assert changed == len(network.directions)
    return took_ms


def rates(quick: bool) -> Iterator[Row]:
    """Payload rate of one flow over what its shaped links should carry."""
    for name, topology in (("star", Star()), ("dumbbell", Dumbbell())):
        for rate_mbit in (10, 1000, 10_000) if quick else RATES_MBIT:
            with topology.up(2, Static(rate_mbit=rate_mbit), 1.0) as network:
                sender, receiver = network.nodes
                ends = (sender.namespace, receiver.namespace, receiver.address)
                queue_bytes = network.directions[0].queue_bytes
                [measured] = probe.measure([probe.ProbePath(*ends, rate_mbit)], 1.5, queue_bytes)
            ratio = measured / rate_mbit / probe.PAYLOAD_SHARE
            what = f"{name}: {rate_mbit} Mbit/s, payload / (0.956 x rate)"
            yield Row(what, ratio, least=0.95, most=1.03)


def changes(quick: bool) -> Iterator[Row]:
    """A flow while its links change every 100 ms: payload over the plan's sum, and drops."""
    for name, profile in CHANGES.items():
        for offload, (least, seconds) in FOLLOWED.items():
            what = f"{name} every 100 ms, offload {offload}"
            ratio, drops = _followed(profile, offload, min(5.0, seconds) if quick else seconds)
            yield Row(f"{what}: payload / planned", ratio, least=least, most=1.01)
            yield Row(f"{what}: packets dropped", drops, most=0)


def _followed(profile: Profile, offload: str, seconds: float) -> tuple[float, int]:
    """Payload over what was planned; drops. One flow, whose queue is never empty and never full."""
    queue_bytes = 4 * WINDOW_BYTES
    topology = Star(update_s=UPDATE_S, offload=offload, queue_ms=None, queue_bytes=queue_bytes)
    with topology.up(2, profile, 1.0) as network, _playing(network) as (clock, _):
        sender, receiver = network.nodes
        ends = probe.Ends(sender.namespace, receiver.namespace, receiver.address)
        there, here = probe.connect(ends, WINDOW_BYTES)
        done = threading.Event()
        sending = threading.Thread(target=probe.send_until, args=(here, done.is_set))
        sending.start()
        clock.start()
        came = _received(there, clock, 1.0 + seconds)
        done.set()
        sending.join()
        here.close()
        there.close()
        drops = sum(counted.drops for counted in network.counters().values())
    moments = range(round(1.0 / UPDATE_S), round((1.0 + seconds) / UPDATE_S))  # the first 1 s: TCP
    mbit = [profile.link(moment * UPDATE_S, 0, "up").rate_mbit for moment in moments]
    planned = sum(mbit) * UPDATE_S * 125_000 * probe.PAYLOAD_SHARE
    return came / planned, drops


def _received(there: socket, clock: Clock, until_s: float) -> int:
    """Bytes that come from second 1 of `clock` on."""
    buffer, total, at_start = bytearray(1 << 16), 0, None
    while (now_s := clock.now()) < until_s:
        if at_start is None and now_s >= 1.0:
            at_start = total
        total += there.recv_into(buffer, 0, MSG_TRUNC)
    assert at_start is not None
    return total - at_start


def delays(quick: bool) -> Iterator[Row]:
    """How long after its planned time a change is in force and read back, every link changing."""
    profile = Fluctuating(low_mbit=10, high_mbit=1000, min_s=0.02, max_s=0.09)
    for nodes, most_ms in ((FEW, 20.0), (MANY, None)):
        with Star(update_s=UPDATE_S).up(nodes, profile, 1.0) as network:
            with _playing(network) as (clock, run_dir):
                clock.start()
                threading.Event().wait(3.0 if quick else 10.0)  # a while of playing
                told = read_events(run_dir)
        late_ms = [event["late_ms"] for event in told if event["planned_s"]]
        kept = sum(event["applied"] for event in told) / len(told)
        cuts = statistics.quantiles(late_ms, n=100, method="inclusive")
        yield Row(f"{nodes} nodes: planned to applied, ms, median", cuts[49])
        yield Row(f"{nodes} nodes: planned to applied, ms, 99 %", cuts[98], most=most_ms)
        yield Row(f"{nodes} nodes: planned to applied, ms, longest", max(late_ms))
        yield Row(f"{nodes} nodes: share of the plan's changes applied", kept, least=1)


@contextmanager
def _playing(network: Network) -> Iterator[tuple[Clock, Path]]:
    """The profile is followed from when the clock is started; in what folder it is told."""
    with TemporaryDirectory() as folder:
        run_dir, clock = Path(folder), Clock()
        Table(run_dir, "links.csv").header()
        player = Player(network, clock, run_dir, Events(run_dir))
        try:
            yield clock, run_dir
        finally:
            player.stop()


PARTS = {"scale": scale, "rates": rates, "changes": changes, "delays": delays}


def main(names: Sequence[str], quick: bool) -> int:
    print(f"load before: {os.getloadavg()[0]:.2f}")
    missed = 0
    for name in names:
        for row in PARTS[name](quick):
            print(row, flush=True)
            missed += not row.ok
    print(f"load after: {os.getloadavg()[0]:.2f}; targets missed: {missed}")
    return int(missed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rates, shorter")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if os.getpid() != 1:
        user = ["--user", "--map-root-user"] if os.geteuid() else []
        os.execvp(SPACES[0], [*SPACES, *user, sys.executable, *sys.argv])
    sys.exit(main(options.only, options.quick))
