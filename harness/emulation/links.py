"""One shaped link direction: HTB with one class over a FIFO that is limited in bytes.

Changing an HTB class keeps its queue and tokens; TBF would refill its bucket. HTB lets a packet
larger than the burst pass and then waits, so the burst only has to cover the delay of a late timer.
The burst is therefore a constant time, which is also what the kernel stores. It is independent of
the rate, and an idle link gains the same share of a second at any rate.
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
_MINOR = 1  # minor number of the shaped class below any root
_REASONS = {
    errno.EPERM: "no CAP_NET_ADMIN here",
    errno.ENOENT: "not there, or this kernel lacks it",
    errno.ENODEV: "its interface is gone",
}


class Shaper(NamedTuple):
    """Address of one link's shaper: an interface, and its HTB qdisc with the link's class."""

    name: str  # of the link, for error messages
    interface: int
    root: int = ROOT

    @property
    def place(self) -> classes.Class:
        return classes.Class(self.interface, self.root + _MINOR, self.root)


class Shape(NamedTuple):
    """Rate, burst and queue of one direction, either intended or read back."""

    rate_mbit: float  # real
    burst_us: int
    queue_bytes: int


class Counters(NamedTuple):
    bytes: int  # Ethernet frames, since the shaper was added
    backlog_bytes: int
    drops: int


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Context manager: turn a netlink error into a NetworkError that names the attempt `what`."""
    try:
        yield
    except NetlinkError as error:
        raise refused(what, error.code) from error


def refused(what: str, code: int) -> NetworkError:
    """Return the error to raise when the kernel answered `code` to the attempt `what`."""
    return NetworkError(f"{what}: {_REASONS.get(code, os.strerror(code))} (netlink error {code})")


def rate_bytes(rate_mbit: float) -> int:
    """Convert a real rate from Mbit/s to bytes/s; raise ValueError outside a shaper's range."""
    if not LOWEST_MBIT <= rate_mbit <= HIGHEST_MBIT:
        span = f"[{LOWEST_MBIT}, {HIGHEST_MBIT:.0f}]"
        raise ValueError(f"link rate must be in {span} Mbit/s, got {rate_mbit}")
    return round(rate_mbit * 125_000)


def shape(ip: IPRoute, index: int, name: str, rate_mbit: float, queue_bytes: int) -> None:
    """Limit the egress of interface `index`, link `name`, to a real rate."""
    add_root(ip, index, name)
    add_class(ip, index, name, rate_mbit, queue_bytes)


def add_root(ip: IPRoute, index: int, name: str, root: int = ROOT, default: int = _MINOR) -> None:
    """Add the HTB qdisc `root`; packets that match no filter go to its class `default`."""
    with attempt(f"add htb {root >> 16:x}: to {name}"):
        ip.tc("add", "htb", index, root, default=default)


def add_class(
    ip: IPRoute, index: int, name: str, rate_mbit: float, queue_bytes: int, root: int = ROOT
) -> None:
    """Add a shaped class and its queue below the existing HTB qdisc `root` of interface `index`.

    `rate_mbit` is real. Raise NetworkError, naming the link, if the kernel refuses.
    """
    place = Shaper(name, index, root).place
    request = classes.tell(place, rate_bytes(rate_mbit), BURST_US, QUANTUM_BYTES, add=True)
    [answer] = batch.ask(ip, [request])
    if isinstance(answer, int):
        raise refused(f"add a class of {rate_mbit} Mbit/s to {name}", answer)
    with attempt(f"add a queue of {queue_bytes} bytes to {name}"):
        ip.tc("add", "bfifo", index, LEAF, parent=root + _MINOR, limit=queue_bytes)


def change_rate(ip: IPRoute, index: int, name: str, rate_mbit: float, root: int = ROOT) -> None:
    """Change the rate of a link while traffic flows; its queue and tokens are kept."""
    change_rates(ip, [(Shaper(name, index, root), rate_mbit)])


def change_rates(ip: IPRoute, wanted: Sequence[tuple[Shaper, float]]) -> list[float]:
    """Change the rates of links in one batch; return the real Mbit/s that the kernel then has.

    If the kernel refuses some, change the others and raise NetworkError that names the refused.
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
    """Return the kernel's real Mbit/s and burst in us of link `name`; NetworkError if gone."""
    what = f"read back the class of {name}"
    [answer] = batch.ask(ip, [classes.ask_for(Shaper(name, index, root).place)])
    if answer == errno.ENOENT:
        raise NetworkError(f"{what}: it is gone")
    if isinstance(answer, int):
        raise refused(what, answer)
    found = _held(what, answer)
    return found.rate / 125_000, found.burst_us


def read_rates(ip: IPRoute, shapers: Sequence[Shaper]) -> list[float | None]:
    """Return the kernel's real rates in Mbit/s, read in one batch; None if a class is missing.

    Raise NetworkError if the kernel refuses, or a class is of another kind.
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
    """Return class and queue of link `name`; NetworkError if either is gone or foreign."""
    rate_mbit, burst_us = read_rate(ip, index, name, root)
    [answer] = batch.ask(ip, [classes.ask_for_leaf(Shaper(name, index, root).place)])
    queue = None if isinstance(answer, int) else classes.queue(answer)
    if queue is None:
        raise NetworkError(f"read back the queue of {name}: it is gone or of another kind")
    return Shape(rate_mbit, burst_us, queue.limit_bytes)


def counters(ip: IPRoute) -> dict[int, Counters]:
    """Return the counters of every shaped interface of this namespace, by index, in one request."""
    found = {}
    with attempt("read the counters of all links"):
        for answer in batch.dump(ip, *classes.all_qdiscs()):
            index, handle = classes.place(answer)
            queue = classes.queue(answer) if handle == LEAF else None
            if queue:
                found[index] = Counters(queue.bytes, queue.backlog_bytes, queue.drops)
    return found


def received_bytes(ip: IPRoute) -> dict[int, int]:
    """Return the received bytes of Ethernet frames of every interface here, by index."""
    with attempt("read the counters of all interfaces"):
        return {link["index"]: link.get_attr("IFLA_STATS64")["rx_bytes"] for link in ip.get_links()}
