"""One shaped link direction: HTB with one class over a byte-limited FIFO, or a qdisc alone.

HTB's change-class keeps the queue and the tokens, where TBF refills its bucket at every change. HTB
lets a packet larger than the burst pass and then waits, so the burst only has to cover the time
until a late timer fires. It is therefore a constant time, which is also what the kernel stores: it
never changes with the rate, and a link that was idle gains the same share of a second at any rate.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_pfifo

from harness.emulation import batch, classes
from harness.emulation.errors import NetworkError as NetworkError
from harness.emulation.packets import BURST_US

plugins["bfifo"] = sched_pfifo  # same options; pyroute2 0.9 lacks the name and would take the root

LOWEST_MBIT, HIGHEST_MBIT = 0.001, 400_000.0
QUANTUM_BYTES = 60_000  # one class per qdisc: only keeps the kernel from choosing and warning
ROOT, LEAF = 0x10000, 0x100000
_MINOR = 1  # of the shaped class, below any root
_REASONS = {
    errno.EPERM: "no CAP_NET_ADMIN here",
    errno.ENOENT: "not there, or this kernel lacks it",
    errno.ENODEV: "its interface is gone",
}


class Shaper(NamedTuple):
    """Address of one link's shaper: an interface, and the htb there that has its class."""

    name: str  # of the link, for errors
    interface: int
    root: int = ROOT

    @property
    def place(self) -> classes.Class:
        return classes.Class(self.interface, self.root + _MINOR, self.root)


class Shape(NamedTuple):
    """Rate, burst and queue of one direction, intended or read back."""

    rate_mbit: float  # real
    burst_us: int
    queue_bytes: int


class Counters(NamedTuple):
    bytes: int  # Ethernet frames, since the shaper was added
    backlog_bytes: int
    drops: int


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Turn a netlink error inside into a NetworkError that says `what` was tried."""
    try:
        yield
    except NetlinkError as error:
        raise refused(what, error.code) from error


def refused(what: str, code: int) -> NetworkError:
    """Error to raise when the kernel answered `code` to the attempt `what`."""
    return NetworkError(f"{what}: {_REASONS.get(code, os.strerror(code))} (netlink error {code})")


def rate_bytes(rate_mbit: float) -> int:
    """Bytes/s of a real rate in Mbit/s; ValueError outside what a shaper can be set to."""
    if not LOWEST_MBIT <= rate_mbit <= HIGHEST_MBIT:
        span = f"[{LOWEST_MBIT}, {HIGHEST_MBIT:.0f}]"
        raise ValueError(f"link rate must be in {span} Mbit/s, got {rate_mbit}")
    return round(rate_mbit * 125_000)


def shape(ip: IPRoute, index: int, name: str, rate_mbit: float, queue_bytes: int) -> None:
    """Shape what leaves interface `index`, link `name`, to a real rate."""
    add_root(ip, index, name)
    add_class(ip, index, name, rate_mbit, queue_bytes)


def add_root(ip: IPRoute, index: int, name: str, root: int = ROOT, default: int = _MINOR) -> None:
    """Add the htb qdisc `root`; what no filter matches goes to its class `default`."""
    with attempt(f"add htb {root >> 16:x}: to {name}"):
        ip.tc("add", "htb", index, root, default=default)


def add_class(
    ip: IPRoute, index: int, name: str, rate_mbit: float, queue_bytes: int, root: int = ROOT
) -> None:
    """Add the shaped class and its queue below the htb qdisc `root`, which is there."""
    place = Shaper(name, index, root).place
    request = classes.tell(place, rate_bytes(rate_mbit), BURST_US, QUANTUM_BYTES, add=True)
    [answer] = batch.ask(ip, [request])
    if isinstance(answer, int):
        raise refused(f"add a class of {rate_mbit} Mbit/s to {name}", answer)
    with attempt(f"add a queue of {queue_bytes} bytes to {name}"):
        ip.tc("add", "bfifo", index, LEAF, parent=root + _MINOR, limit=queue_bytes)


def change_rate(ip: IPRoute, index: int, name: str, rate_mbit: float, root: int = ROOT) -> None:
    """Re-shape `index` while traffic flows; its queue and tokens survive."""
    change_rates(ip, [(Shaper(name, index, root), rate_mbit)])


def change_rates(ip: IPRoute, wanted: Sequence[tuple[Shaper, float]]) -> list[float]:
    """Re-shape links at once; the real rate in Mbit/s that the kernel then holds of each.

    NetworkError names all that were refused; the others are then changed nevertheless.
    """
    requests = [
        classes.tell(shaper.place, rate_bytes(rate_mbit), BURST_US, QUANTUM_BYTES)
        for shaper, rate_mbit in wanted
    ]
    found, failures = [], []
    for (shaper, rate_mbit), answer in zip(wanted, batch.ask(ip, requests), strict=True):
        what = f"change {shaper.name} to {rate_mbit} Mbit/s"
        if isinstance(answer, int):
            failures.append(str(refused(what, answer)))
        else:
            found.append(_held(what, answer).rate / 125_000)
    if failures:
        raise NetworkError("; ".join(failures))
    return found


def _held(what: str, answer: bytes) -> classes.ClassRate:
    if (found := classes.held(answer)) is None:
        raise NetworkError(f"{what}: its class is of another kind")
    return found


def read_rate(ip: IPRoute, index: int, name: str, root: int = ROOT) -> tuple[float, int]:
    """Real rate in Mbit/s and burst in us that the kernel holds for link `name`."""
    what = f"read back the class of {name}"
    [answer] = batch.ask(ip, [classes.ask_for(Shaper(name, index, root).place)])
    if answer == errno.ENOENT:
        raise NetworkError(f"{what}: it is gone")
    if isinstance(answer, int):
        raise refused(what, answer)
    found = _held(what, answer)
    return found.rate / 125_000, found.burst_us


def read_rates(ip: IPRoute, shapers: Sequence[Shaper]) -> list[float | None]:
    """Real rates in Mbit/s that the kernel holds, asked for at once; None: there is no such class.

    NetworkError when the kernel refuses, or a class is of another kind.
    """
    found: list[float | None] = []
    answers = batch.ask(ip, [classes.ask_for(shaper.place) for shaper in shapers])
    for shaper, answer in zip(shapers, answers, strict=True):
        what = f"read back the shaper of {shaper.name}"
        if answer in (errno.ENOENT, errno.EINVAL, errno.ENODEV):
            found.append(None)
        elif isinstance(answer, int):
            raise refused(what, answer)
        else:
            found.append(_held(what, answer).rate / 125_000)
    return found


def read_shape(ip: IPRoute, index: int, name: str, root: int = ROOT) -> Shape:
    """Class and queue of link `name`; NetworkError when either is gone or of another kind."""
    rate_mbit, burst_us = read_rate(ip, index, name, root)
    [answer] = batch.ask(ip, [classes.ask_for_leaf(Shaper(name, index, root).place)])
    queue = None if isinstance(answer, int) else classes.queue(answer)
    if queue is None:
        raise NetworkError(f"read back the queue of {name}: it is gone or of another kind")
    return Shape(rate_mbit, burst_us, queue.limit_bytes)


def counters(ip: IPRoute) -> dict[int, Counters]:
    """Counters of every shaped interface here, by index, from one dump."""
    found = {}
    with attempt("read the counters of all links"):
        for answer in batch.dump(ip, *classes.all_qdiscs()):
            index, handle = classes.place(answer)
            queue = classes.queue(answer) if handle == LEAF else None
            if queue:
                found[index] = Counters(queue.bytes, queue.backlog_bytes, queue.drops)
    return found


def received_bytes(ip: IPRoute) -> dict[int, int]:
    """Bytes of Ethernet frames that arrived at every interface here, by index."""
    with attempt("read the counters of all interfaces"):
        return {link["index"]: link.get_attr("IFLA_STATS64")["rx_bytes"] for link in ip.get_links()}
