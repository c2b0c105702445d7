"""Impairments of one link direction by the source of a packet, for sites with different delays.

An HTB qdisc without a limit has one class per group of sources, a netem in each, and a filter per
address. Packets of other sources pass unimpaired. The kernel logs that netem "is
non-work-conserving" under HTB. This is intended and harmless: HTB then serves the other classes.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.protocols import ETH_P_IP

from harness.emulation import impairments, links
from harness.emulation.impairments import Impairment
from harness.emulation.links import attempt
from harness.emulation.packets import BURST_US
from profiles.base import Link

MOST_CLASSES = 256
_ROOT = impairments.HANDLE
_FIRST_LEAF = 0x1000000  # major numbers 0x100 on
_EACH_LEAF = 0x10000
_SOURCE = 12  # offset of the source address in an IPv4 header


class Sources(NamedTuple):
    """A group of nodes, by IPv4 address, whose packets have the same `link`, in real time."""

    addresses: Sequence[str]
    link: Link


def impair(ip: IPRoute, index: int, name: str, classes: Sequence[Sources]) -> None:
    """Delay and lose outgoing packets of interface `index`, link `name`, by their source address.

    The rates in `classes` are ignored. Raise ValueError for too many classes or none, and
    NetworkError if the kernel refuses.
    """
    if not 1 <= len(classes) <= MOST_CLASSES:
        raise ValueError(f"classes of sources must be in [1, {MOST_CLASSES}], got {len(classes)}")
    with attempt(f"add htb to {name}"):
        ip.tc("add", "htb", index, _ROOT, default=0)
    for number, sources in enumerate(classes):
        with attempt(f"add class {number} of the sources of {name}"):
            ip.tc("add-class", "htb", index, _class(number), parent=_ROOT, **_endless())
        parent, handle = _class(number), _leaf(number)
        impairments.impair(ip, index, f"{name} from {number}", sources.link, parent, handle)
        for address in sources.addresses:
            match = f"{int(IPv4Address(address)):#010x}/0xffffffff+{_SOURCE}"
            with attempt(f"match packets of {address} on {name}"):
                ip.tc(
                    "add-filter", "u32", index, parent=_ROOT, prio=1, protocol=ETH_P_IP,
                    target=_class(number), keys=[match],
                )  # fmt: skip


def change(ip: IPRoute, index: int, name: str, number: int, link: Link) -> bool:
    """Change class `number` while traffic flows; return False if it was set already."""
    parent, handle = _class(number), _leaf(number)
    return impairments.change(ip, index, f"{name} from {number}", link, parent, handle)


def read(ip: IPRoute, index: int, name: str, number: int) -> Impairment:
    """Return the settings of class `number`; NetworkError if its netem is missing."""
    return impairments.read(ip, index, f"{name} from {number}", _leaf(number))


def _class(number: int) -> int:
    return _ROOT + 1 + number


def _leaf(number: int) -> int:
    return _FIRST_LEAF + _EACH_LEAF * number


def _endless() -> dict[str, float]:
    """Return the settings of a class that limits nothing."""
    rate = links.rate_bytes(links.HIGHEST_MBIT)
    burst_bytes = rate * BURST_US / 1e6
    return {
        "rate": rate,
        "ceil": rate,
        "burst": burst_bytes,
        "cburst": burst_bytes,
        "quantum": links.QUANTUM_BYTES,
    }
