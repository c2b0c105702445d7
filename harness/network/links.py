"""One shaped link direction: HTB with one class over a byte-limited FIFO; owns pyroute2's units.

HTB's change-class keeps the queue and the tokens, where TBF refills its bucket at every change. HTB
lets a packet larger than the burst pass and then waits, so the burst only has to cover the time
until a late timer fires. It is therefore a constant time, which is also what the kernel stores: it
never changes with the rate, and a link that was idle gains the same share of a second at any rate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_pfifo

plugins["bfifo"] = sched_pfifo  # same options; pyroute2 0.9 lacks the name and would take the root

LOWEST_MBIT, HIGHEST_MBIT = 0.001, 400_000.0
BURST_US = 2000
QUANTUM_BYTES = 60_000  # one class per qdisc: only keeps the kernel from choosing and warning
ROOT, CLASS, LEAF = 0x10000, 0x10001, 0x100000
_MINOR = CLASS - ROOT  # of the shaped class, below any root
_TICKS_PER_US = 15.625  # packet scheduler ticks of 64 ns


class NetworkError(RuntimeError):
    """The kernel refused something; the message names the attempt and the object."""


class Shape(NamedTuple):
    """What one direction is set to, or was read back as."""

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
        reason = {1: "no CAP_NET_ADMIN here", 2: "not there, or this kernel lacks it"}
        detail = reason.get(error.code, error.args[1])
        raise NetworkError(f"{what}: {detail} (netlink error {error.code})") from error


def rate_bytes(rate_mbit: float) -> int:
    """Bytes/s of a real rate in Mbit/s; ValueError outside what a shaper can be set to."""
    if not LOWEST_MBIT <= rate_mbit <= HIGHEST_MBIT:
        span = f"[{LOWEST_MBIT}, {HIGHEST_MBIT:.0f}]"
        raise ValueError(f"link rate must be in {span} Mbit/s, got {rate_mbit}")
    return round(rate_mbit * 125_000)


def _class_options(rate: int) -> dict[str, float]:
    # half a microsecond more than BURST_US: pyroute2 cuts to whole microseconds
    burst_bytes = rate * (BURST_US + 0.5) / 1e6
    return {
        "rate": rate,
        "ceil": rate,
        "burst": burst_bytes,
        "cburst": burst_bytes,
        "quantum": QUANTUM_BYTES,
    }


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
    options = _class_options(rate_bytes(rate_mbit))
    with attempt(f"add a class of {rate_mbit} Mbit/s to {name}"):
        ip.tc("add-class", "htb", index, root + _MINOR, parent=root, **options)
    with attempt(f"add a queue of {queue_bytes} bytes to {name}"):
        ip.tc("add", "bfifo", index, LEAF, parent=root + _MINOR, limit=queue_bytes)


def change_rate(ip: IPRoute, index: int, name: str, rate_mbit: float, root: int = ROOT) -> None:
    """Re-shape `index` while traffic flows; its queue and tokens survive."""
    options = _class_options(rate_bytes(rate_mbit))
    with attempt(f"change {name} to {rate_mbit} Mbit/s"):
        ip.tc("change-class", "htb", index, root + _MINOR, parent=root, **options)


def read_rate(ip: IPRoute, index: int, name: str, root: int = ROOT) -> tuple[float, int]:
    """Real rate in Mbit/s and burst in us that the kernel holds for link `name`."""
    with attempt(f"read back the class of {name}"):
        found = [c for c in ip.get_classes(index) if c["handle"] == root + _MINOR]
    if not found:
        raise NetworkError(f"read back the class of {name}: it is gone")
    options = found[0].get_attr("TCA_OPTIONS")
    held = options.get_attr("TCA_HTB_PARMS")
    rates = options.get_attr("TCA_HTB_RATE64") or held["rate"]
    ceilings = options.get_attr("TCA_HTB_CEIL64") or held["ceil"]
    return min(rates, ceilings) / 125_000, int(held["buffer"] / _TICKS_PER_US)


def read_shape(ip: IPRoute, index: int, name: str, root: int = ROOT) -> Shape:
    """Class and queue of link `name`; NetworkError when either is gone or of another kind."""
    rate_mbit, burst_us = read_rate(ip, index, name, root)
    with attempt(f"read back the queue of {name}"):
        leaves = [q for q in ip.get_qdiscs(index) if q["parent"] == root + _MINOR]
    if not leaves or leaves[0].get_attr("TCA_KIND") != "bfifo":
        raise NetworkError(f"read back the queue of {name}: it is gone or of another kind")
    return Shape(rate_mbit, burst_us, leaves[0].get_attr("TCA_OPTIONS")["limit"])


def counters(ip: IPRoute) -> dict[int, Counters]:
    """Counters of every shaped interface here, by index, from one dump."""
    found = {}
    with attempt("read the counters of all links"):
        for qdisc in ip.get_qdiscs():
            if qdisc.get_attr("TCA_KIND") == "bfifo" and qdisc["handle"] == LEAF:
                stats = qdisc.get_attr("TCA_STATS2")
                queue = stats.get_attr("TCA_STATS_QUEUE")
                sent = stats.get_attr("TCA_STATS_BASIC")["bytes"]
                found[qdisc["index"]] = Counters(sent, queue["backlog"], queue["drops"])
    return found


def received_bytes(ip: IPRoute) -> dict[int, int]:
    """Bytes of Ethernet frames that arrived at every interface here, by index."""
    with attempt("read the counters of all interfaces"):
        return {link["index"]: link.get_attr("IFLA_STATS64")["rx_bytes"] for link in ip.get_links()}
