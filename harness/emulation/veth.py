"""Interfaces, addresses and routes of emulated nodes: every eth0 ends at a port of the switch.

The switch routes instead of bridging, and all neighbour entries are static: 64 nodes that all talk
to each other would need 4032 ARP entries, and the kernel keeps 1024 for all namespaces together. A
node's packets enter its port and are redirected to an ifb, whose egress is the uplink's shaper; the
port's own egress is the downlink's. So both shapers are beyond the sender's stack. Packets are
released from its socket on the way, as TCP small queues would otherwise hide queueing and loss.

To delay or lose packets, the cable is cut: eth0 - outer | inner - port. Outer and inner are patched
together at layer 2, so netem has interfaces of its own on the way up (inner) and down (outer).
"""

import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import TC_H_INGRESS, TC_H_ROOT

from harness.emulation import impairments, tcp_settings
from harness.emulation.links import NetworkError, attempt
from harness.emulation.namespaces import Namespace
from harness.emulation.redirect import redirect

SUBNET = "10.77.0.0/16"
LEFT, RIGHT = "10.77.0.0/18", "10.77.128.0/18"  # halves of a switch with a trunk; SWITCH in neither
SWITCH = "10.77.255.254"
MOST_NODES = 4096
INTERFACE = "eth0"
MTU_BYTES = 1500
CARRIER_S = 10.0  # limit for a cable to get its carrier
GROUP = 77  # of all interfaces in the switch: one request removes them together
_PARENTS = {TC_H_ROOT: "root", TC_H_INGRESS: "ingress"}
_FIRST_INDEX = 1000  # we choose interface indices, so that none has to be looked up
_PER_NODE = 4


class Cut(NamedTuple):
    """The two interfaces in the middle of a cut cable, to which netem is attached."""

    inner: int  # its egress is the way up: from the node, or from left to right
    outer: int  # its egress is the way down


class Cable(NamedTuple):
    """Properties of the cable from a node to the switch."""

    shaped: bool = True  # whether its uplink can be; its downlink always can
    cut: bool = False
    right: bool = False  # to the right half of the switch
    packet_bytes: int | None = None  # longest packet of the node; None: 64 KB


class EmulatedNode(NamedTuple):
    namespace: Namespace
    address: str
    port: int  # index of the switch's interface to it; its egress is the downlink
    uplink: int | None  # index of the ifb for packets that a shaped node sends
    cut: Cut | None


class Trunk(NamedTuple):
    """The cable between the halves of a switch. Each end's egress shapes one direction."""

    left: int
    right: int
    cut: Cut | None


def require_empty(ip: IPRoute) -> None:
    """Raise NetworkError if this namespace already has a live interface."""
    for link in ip.get_links():
        name = link.get_attr("IFLA_IFNAME")
        if name != "lo" and link["flags"] & 1:
            message = f"interface {name} is up here; a network needs a namespace of its own"
            raise NetworkError(f"bring up a switch: {message}")


def set_up_switch(ip: IPRoute, sysctls: dict[str, str]) -> None:
    tcp_settings.set_sysctls(sysctls | tcp_settings.FORWARDING)
    with attempt("set up the switch"):
        ip.link("set", index=1, state="up")
        ip.addr("add", index=1, address=SWITCH, prefixlen=32)


def remove(ip: IPRoute) -> None:
    """Remove all interfaces, rules and addresses of the switch."""
    with attempt("remove the switch's interfaces"):
        ip.link("del", group=GROUP)
        ip.flush_rules(family=2, priority=lambda priority: priority in _RULES)
        ip.addr("delete", index=1, address=SWITCH, prefixlen=32)


def await_carriers(ip: IPRoute) -> None:
    """Wait until every cable of the switch has a carrier; raise NetworkError after CARRIER_S.

    An interface drops packets after its peer came up until a kernel worker has noticed, which takes
    tens of milliseconds on a busy machine. Newer kernels notice when that one interface is queried.
    """
    end_s = time.monotonic() + CARRIER_S
    with attempt("read the interfaces"):
        for link in ip.get_links():
            if link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") != "veth":
                continue
            while (state := ip.get_links(link["index"])[0].get_attr("IFLA_OPERSTATE")) != "UP":
                if time.monotonic() > end_s:
                    name, what = link.get_attr("IFLA_IFNAME"), "it must be UP to carry packets"
                    raise NetworkError(f"{name} is {state} after {CARRIER_S:g} s; {what}")
                time.sleep(0.001)


def _mac(side: int, number: int) -> str:
    return f"02:4d:00:{side:02x}:{number >> 8:02x}:{number & 255:02x}"


def _address(number: int, right: bool) -> str:
    high, low = divmod(number + 1, 256)
    return f"10.77.{high + 128 * right}.{low}"


def add_node(
    ip: IPRoute, number: int, sysctls: dict[str, str], congestion_control: str, cable: Cable
) -> EmulatedNode:
    """Wire node `number`, unshaped, to the switch in the calling thread's namespace."""
    port = _FIRST_INDEX + _PER_NODE * number
    uplink = port + 1 if cable.shaped else None
    node = EmulatedNode(Namespace.create(), _address(number, cable.right), port, uplink, None)
    with node.namespace.entered():
        # before eth0 exists, which copies the default of disable_ipv6
        tcp_settings.set_sysctls(sysctls)
    node = node._replace(cut=_lay_cable(ip, number, node, cable.cut))
    _add_uplink(ip, number, node)
    route = {"metrics": {"cc_algo": congestion_control}}  # the sysctl is refused in a namespace
    with attempt(f"route to node {number} with congestion control {congestion_control}"):
        ip.neigh("add", dst=node.address, lladdr=_mac(0, number), ifindex=node.port, state=128)
        ip.route("add", dst=node.address, oif=node.port, scope="link", prefsrc=SWITCH, **route)
    with node.namespace.entered(), IPRoute() as inside:
        with attempt(f"set up {INTERFACE} of node {number}"):
            eth0 = socket.if_nametoindex(INTERFACE)
            inside.link("set", index=1, state="up")
            inside.addr("add", index=eth0, address=node.address, prefixlen=32)
            limit = {"gso_max_size": cable.packet_bytes} if cable.packet_bytes else {}
            inside.link("set", index=eth0, state="up", **limit)
            inside.neigh("add", dst=SWITCH, lladdr=_mac(1, number), ifindex=eth0, state=128)
            onlink = {"gateway": SWITCH, "oif": eth0, "flags": ["onlink"]}
            inside.route("add", dst=SUBNET, prefsrc=node.address, **onlink, **route)
    return node


def _lay_cable(ip: IPRoute, number: int, node: EmulatedNode, is_cut: bool) -> Cut | None:
    """Add a veth from the node's eth0 to its port; a cut cable is two veths, patched together."""
    eth0 = {"ifname": INTERFACE, "address": _mac(0, number)}
    there = eth0 | {"net_ns_fd": node.namespace.descriptor}
    port = {"ifname": f"p{number}", "index": node.port, "address": _mac(1, number)}
    cut = None
    with attempt(f"add the cable of node {number}"):
        if is_cut:
            outer = {"ifname": f"o{number}", "index": node.port + 2}
            _add_veth(ip, outer, there)
            _add_veth(ip, port, {"ifname": f"i{number}"})
            cut = Cut(socket.if_nametoindex(f"i{number}"), node.port + 2)
            impairments.join(ip, cut.outer, cut.inner, f"node {number}")
        else:
            _add_veth(ip, port, there)
        ip.link("set", index=node.port, state="up")
    return cut


def _add_veth(ip: IPRoute, mine: dict, peer: dict) -> None:
    ends = {"peer": peer | {"mtu": MTU_BYTES, "group": GROUP}}
    ip.link("add", kind="veth", mtu=MTU_BYTES, group=GROUP, **ends, **mine)


def _add_uplink(ip: IPRoute, number: int, node: EmulatedNode) -> None:
    if node.uplink is None:
        return
    uplink = f"u{number}"
    with attempt(f"add ifb {uplink}"):
        ip.link("add", kind="ifb", ifname=uplink, index=node.uplink, group=GROUP)
        ip.link("set", index=node.uplink, state="up")
    # without a delay, the sender's socket would notice the queue
    redirect(ip, node.port, node.uplink, f"p{number}", free=True)


_TRUNK = ("trunk_left", "trunk_right")
_TABLES = (101, 102)  # route tables of the halves, for packets to the other half
_MAIN = 254
_RULES = (100, 101)  # priorities: packets from the trunk are delivered before the halves' rules


def add_trunk(ip: IPRoute, cut: bool = False) -> Trunk:
    """Join the halves of the switch by a cable between LEFT and RIGHT.

    Both halves live in one namespace. Rules by source and destination send traffic over the trunk.
    """
    near = {"ifname": _TRUNK[0], "address": _mac(2, 0)}
    far = {"ifname": _TRUNK[1], "address": _mac(2, 1)}
    ends = None
    with attempt("add the trunk"):
        if cut:
            _add_veth(ip, near, {"ifname": "trunk_outer"})
            _add_veth(ip, far, {"ifname": "trunk_inner"})
            ends = Cut(*map(socket.if_nametoindex, ("trunk_inner", "trunk_outer")))
            impairments.join(ip, ends.outer, ends.inner, "the trunk")
        else:
            _add_veth(ip, near, far)
        left, right = map(socket.if_nametoindex, _TRUNK)
        for index in (left, right):
            ip.link("set", index=index, state="up")
    with attempt("route over the trunk"):
        _send_over(ip, left, 0, (LEFT, RIGHT))
        _send_over(ip, right, 1, (RIGHT, LEFT))
    return Trunk(left, right, ends)


def _send_over(ip: IPRoute, index: int, side: int, halves: tuple[str, str]) -> None:
    """Route packets from the first half to the other half through trunk end `index`."""
    gateway, table = f"10.77.255.{side}", _TABLES[side]  # a neighbour entry without an interface
    ip.neigh("add", dst=gateway, lladdr=_mac(2, 1 - side), ifindex=index, state=128)
    ip.route("add", dst="0.0.0.0/0", gateway=gateway, oif=index, flags=["onlink"], table=table)
    arrived, asking = _RULES
    ip.rule("add", priority=arrived, iifname=_TRUNK[side], table=_MAIN)
    ip.rule("add", priority=asking, src=halves[0], dst=halves[1], table=table)


def describe(ip: IPRoute) -> dict[str, dict[str, Any]]:
    """Return sysctls and interfaces of the calling thread's namespace, where `ip` was opened.

    Qdiscs are texts such as `htb 1: root`, without those that the kernel adds itself.
    """
    with attempt("read the interfaces and qdiscs"):
        interfaces = {
            link["index"]: {
                "name": link.get_attr("IFLA_IFNAME"),
                "mtu_bytes": link.get_attr("IFLA_MTU"),
                "gso_max_bytes": link.get_attr("IFLA_GSO_MAX_SIZE"),
                "gso_max_packets": link.get_attr("IFLA_GSO_MAX_SEGS"),
                "qdiscs": [],
            }
            for link in ip.get_links()
        }
        for qdisc in ip.get_qdiscs():
            if qdisc["handle"] and qdisc["index"] in interfaces:
                interfaces[qdisc["index"]]["qdiscs"].append(_qdisc_text(qdisc))
    by_name = {interface.pop("name"): interface for interface in interfaces.values()}
    for name, interface in by_name.items():
        interface |= tcp_settings.read_offloads(name)
    return {"sysctls": tcp_settings.read_sysctls(), "interfaces": by_name}


def _qdisc_text(qdisc: Any) -> str:
    parent = _PARENTS.get(qdisc["parent"], f"{qdisc['parent'] >> 16:x}:{qdisc['parent'] & 65535:x}")
    return f"{qdisc.get_attr('TCA_KIND')} {qdisc['handle'] >> 16:x}: {parent}"


def differences(where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare two results of `describe` for `where`, a line each; new interfaces by qdiscs only."""
    lines = []
    for name, old in before["interfaces"].items():
        if (new := now["interfaces"].get(name)) is None:
            lines.append(f"interface {name} of {where} is gone")
            continue
        lines += [
            f"qdisc {lost} of interface {name} of {where} is gone"
            for lost in old["qdiscs"]
            if lost not in new["qdiscs"]
        ]
        lines += [
            f"{key} of interface {name} of {where} is {new[key]}, was {old[key]}"
            for key in old
            if key != "qdiscs" and new[key] != old[key]
        ]
    for name, new in now["interfaces"].items():
        ours = before["interfaces"].get(name, {"qdiscs": []})["qdiscs"]
        lines += [
            f"interface {name} of {where} has qdisc {foreign}, which is not ours"
            for foreign in new["qdiscs"]
            if foreign not in ours
        ]
    return lines + [
        f"sysctl {key} of {where} is {now['sysctls'][key]}, was {value}"
        for key, value in before["sysctls"].items()
        if now["sysctls"][key] != value
    ]
