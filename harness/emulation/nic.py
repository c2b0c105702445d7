"""One real interface: lead what it sends to, and gets from, some addresses to a shaper; undo it.

Ours are a root qdisc with a handle nobody else uses, an ingress qdisc whose filters have a
preference nobody else uses, and one ifb. What goes to the peers passes the shaped class of the
root; all else passes a second class that never limits. What comes from the peers is redirected to
the ifb and shaped there; all else is not touched. Uplinks are thus shaped in the sender's own
stack: TCP small queues keep the queue in the socket, so it delays, but the sender never sees it.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from socket import AF_INET
from typing import Any, NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import TC_H_INGRESS, TC_H_ROOT
from pyroute2.protocols import ETH_P_IP

from harness.emulation import links
from harness.emulation.links import NetworkError, attempt

HANDLE = 0x4D4E0000  # 4d4e:
PREFERENCE = 0x4D4E
IFB_PREFIX = "gradnet"
IFB_ALIAS = "gradnet: from the peers"
UNSHAPED_PACKETS = 1000  # queue of all other traffic, as long as pfifo_fast's
SHAPED = HANDLE + 1
_UNSHAPED = HANDLE + 2
_UNSHAPED_LEAF = 0x4D4F0000
_INGRESS = 0xFFFF0000
_SOURCE, _DESTINATION, _PORTS = 12, 16, 20  # offsets in an IPv4 header without options
_TCP = "0x00060000/0x00ff0000+8"
_LOOPBACK, _UP = 8, 1  # flags of an interface
_NO_ADDRESS = 1  # IN6_ADDR_GEN_MODE_NONE


@dataclass(frozen=True)
class Nic:
    name: str
    index: int
    mac: str

    @property
    def ifb(self) -> str:
        """Name of the interface that shapes incoming packets."""
        return f"{IFB_PREFIX}{self.index}"


class Piece(NamedTuple):
    """One of our additions to the kernel, and how to remove it."""

    text: str
    remove: Callable[[], object]


def ipv4(key: str, address: str) -> str:
    """Return `address`. Raise ValueError naming `key` if it is not an IPv4 address."""
    try:
        return str(IPv4Address(address))
    except ValueError:
        raise ValueError(
            f"{key} must be the address of a machine, IPv4 only, got {address!r}"
        ) from None


def find(ip: IPRoute, name: str) -> Nic:
    """Return the interface `name` of this namespace. NetworkError if it is missing, down or lo."""
    for link in ip.get_links():
        if link.get_attr("IFLA_IFNAME") == name:
            if link["flags"] & _LOOPBACK or not link["flags"] & _UP:
                raise NetworkError(f"shape {name}: it is a loopback or down; name another")
            return Nic(name, link["index"], link.get_attr("IFLA_ADDRESS") or "")
    names = ", ".join(sorted(other for _, other in socket.if_nameindex()))
    raise NetworkError(f"shape {name}: no such interface; there are {names}")


def towards(ip: IPRoute, address: str) -> str:
    """Return the interface that has `address` or the route to it; NetworkError if none."""
    own = [each for each in ip.get_addr(family=AF_INET) if each.get_attr("IFA_LOCAL") == address]
    if own:
        return socket.if_indextoname(own[0]["index"])
    with attempt(f"find a route to {address}"):
        [route] = ip.route("get", dst=address)
    return socket.if_indextoname(route.get_attr("RTA_OIF"))


def addresses(ip: IPRoute, nic: Nic) -> list[str]:
    """Return the IPv4 addresses of an interface. Raise NetworkError if it has none."""
    with attempt(f"read the addresses of {nic.name}"):
        found = [a.get_attr("IFA_LOCAL") for a in ip.get_addr(index=nic.index, family=AF_INET)]
    if not found:
        raise NetworkError(f"shape {nic.name}: it has no IPv4 address, which network=host needs")
    return found


def mtu_bytes(ip: IPRoute, nic: Nic) -> int:
    with attempt(f"read the MTU of {nic.name}"):
        [link] = ip.get_links(nic.index)
    return link.get_attr("IFLA_MTU")


def qdiscs(ip: IPRoute, index: int) -> list[dict[str, str]]:
    """Return kind, handle and parent of every qdisc of interface `index`, as tc writes them."""
    with attempt(f"read the qdiscs of interface {index}"):
        found = ip.get_qdiscs(index)
    return [
        {
            "kind": qdisc.get_attr("TCA_KIND"),
            "handle": f"{qdisc['handle'] >> 16:x}:",
            "parent": {TC_H_ROOT: "root", TC_H_INGRESS: "ingress"}.get(
                qdisc["parent"], f"{qdisc['parent'] >> 16:x}:{qdisc['parent'] & 0xFFFF:x}"
            ),
        }
        for qdisc in found
    ]


def require_free(ip: IPRoute, nic: Nic) -> None:
    """Raise NetworkError if qdiscs are configured here, or an interface has our ifb's name.

    Qdiscs that the kernel itself adds have handle 0 and come back by themselves.
    """
    for qdisc in qdiscs(ip, nic.index):
        if qdisc["parent"] == "ingress" or (
            qdisc["parent"] == "root" and qdisc["handle"] not in ("0:", "")
        ):
            where = qdisc["parent"]
            raise NetworkError(
                f"shape {nic.name}: it has a configured {where} qdisc, {qdisc['kind']} "
                f"{qdisc['handle']}, which is not ours to replace; if nobody needs it, run "
                f"`tc qdisc del dev {nic.name} {where}`, or give another network.interface"
            )
    if nic.ifb in (name for _, name in socket.if_nameindex()):
        raise NetworkError(
            f"shape {nic.name}: there is an interface {nic.ifb} that is not in our ledger; if "
            f"nobody needs it, run `ip link del {nic.ifb}`"
        )


def prepare(ip: IPRoute, nic: Nic, peers: Sequence[str], control_port: int) -> int:
    """Redirect traffic to and from the IPv4 addresses `peers` to where it can be shaped.

    It goes to class SHAPED of qdisc HANDLE, of `nic` for outgoing and of the ifb for incoming
    packets. The ifb's index is returned. The classes are still to be added, and until then all
    passes. TCP port `control_port` is never redirected, since the machines must hear of each other.
    """
    numbers = [int(IPv4Address(peer)) for peer in peers]
    with attempt(f"add ifb {nic.ifb}"):
        ip.link("add", kind="ifb", ifname=nic.ifb)
        ifb = socket.if_nametoindex(nic.ifb)
        ip.link("set", index=ifb, ifalias=IFB_ALIAS, **_without_ipv6(nic.ifb))
    links.add_root(ip, ifb, nic.ifb, HANDLE, SHAPED & 0xFFFF)
    with attempt(f"set up {nic.ifb}"):
        ip.link("set", index=ifb, state="up")
    links.add_root(ip, nic.index, nic.name, HANDLE, _UNSHAPED & 0xFFFF)
    _let_all_pass(ip, nic)
    redirect = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb}
    with attempt(f"match the peers of {nic.name}"):
        ip.tc("add", "ingress", nic.index, _INGRESS)
        for parent in (HANDLE, _INGRESS):
            for ports in (control_port << 16, control_port):  # source, destination
                mask = 0xFFFF0000 if ports > 0xFFFF else 0xFFFF
                keys = [_TCP, f"{ports:#010x}/{mask:#010x}+{_PORTS}"]
                _match(ip, nic.index, parent, _UNSHAPED, keys)
        for number in numbers:
            address = f"{number:#010x}/0xffffffff"
            _match(ip, nic.index, HANDLE, SHAPED, [f"{address}+{_DESTINATION}"])
            _match(ip, nic.index, _INGRESS, SHAPED, [f"{address}+{_SOURCE}"], action=redirect)
    return ifb


def _without_ipv6(name: str) -> dict[str, Any]:
    """Disable IPv6 on an interface that is down, so that it sends no router solicitations."""
    if not Path("/proc/sys/net/ipv6/conf", name).exists():
        return {}  # refused by a kernel without IPv6
    none = {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", _NO_ADDRESS)]}
    return {"IFLA_AF_SPEC": {"attrs": [("AF_INET6", none)]}}


def _let_all_pass(ip: IPRoute, nic: Nic) -> None:
    """Add the class of all traffic that does not belong to the job."""
    rate = links.rate_bytes(links.HIGHEST_MBIT)
    burst_bytes = rate * links.BURST_US / 1e6
    options = {"rate": rate, "ceil": rate, "burst": burst_bytes, "cburst": burst_bytes}
    with attempt(f"add the class of other traffic to {nic.name}"):
        ip.tc(
            "add-class", "htb", nic.index, _UNSHAPED, parent=HANDLE,
            quantum=links.QUANTUM_BYTES, **options,
        )  # fmt: skip
        leaf, limit = _UNSHAPED_LEAF, UNSHAPED_PACKETS
        ip.tc("add", "pfifo", nic.index, leaf, parent=_UNSHAPED, limit=limit)


def _match(
    ip: IPRoute, index: int, parent: int, target: int, keys: list[str], **action: dict
) -> None:
    """Add a filter. Filters apply in the order of calls, and the first match decides."""
    ip.tc(
        "add-filter", "u32", index, parent=parent, prio=PREFERENCE, protocol=ETH_P_IP,
        target=target, keys=keys, **action,
    )  # fmt: skip


def left(ip: IPRoute, nic: Nic) -> list[Piece]:
    """Return our additions that are on `nic` now, in the order to remove them.

    An ingress qdisc on an interface that had none is ours, unless others added filters.
    """
    found = []
    with attempt(f"look for what is ours on {nic.name}"):
        present = {link["index"]: link for link in ip.get_links()}
        for qdisc in ip.get_qdiscs(nic.index) if nic.index in present else []:
            if qdisc["parent"] == TC_H_INGRESS:
                found += _ingress(ip, nic, qdisc.get_attr("TCA_KIND"))
            elif qdisc["parent"] == TC_H_ROOT and qdisc["handle"] == HANDLE:
                text = f"qdisc htb {HANDLE >> 16:x}: at the root of {nic.name}"
                found.append(Piece(text, partial(_delete, ip, nic.index, "htb", HANDLE)))
        for index, link in present.items():
            if link.get_attr("IFLA_IFNAME") == nic.ifb and _is_ours(link):
                found.append(Piece(f"interface {nic.ifb}", partial(ip.link, "del", index=index)))
    return found


def _is_ours(link: Any) -> bool:
    """Return True if `link`, a netlink link message, is an ifb that this program added.

    Its alias is IFB_ALIAS. An ifb without an alias counts too: we may have died before setting it.
    """
    described = link.get_attr("IFLA_LINKINFO")
    kind = described.get_attr("IFLA_INFO_KIND") if described else None
    return kind == "ifb" and link.get_attr("IFLA_IFALIAS") in (None, IFB_ALIAS)


def _ingress(ip: IPRoute, nic: Nic, kind: str) -> list[Piece]:
    preferences = {f["info"] >> 16 for f in ip.get_filters(nic.index, parent=_INGRESS)}
    if kind == "ingress" and preferences <= {PREFERENCE}:
        remove = partial(_delete, ip, nic.index, "ingress", _INGRESS)
        return [Piece(f"qdisc ingress of {nic.name}", remove)]
    if PREFERENCE not in preferences:
        return []
    info = PREFERENCE << 16 | socket.htons(ETH_P_IP)
    remove = partial(ip.tc, "del-filter", index=nic.index, parent=_INGRESS, info=info)
    return [Piece(f"filters {PREFERENCE} of {kind} of {nic.name}, which others use", remove)]


def _delete(ip: IPRoute, index: int, kind: str, handle: int) -> None:
    ip.tc("del", kind, index, handle)
