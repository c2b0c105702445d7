"""Interfaces, addresses and routes of a star: every node's eth0 ends at a port of the switch.

The switch routes instead of bridging, and every neighbour is static: 64 nodes that all talk to each
other would need 4032 ARP entries, the kernel keeps 1024 for all namespaces together. What a node
sends enters its port and is redirected to an ifb, whose egress is the uplink's shaper; the port's
own egress is the downlink's. So both shapers lie beyond the sender's stack, and its socket never
feels their queue (TCP small queues would hide queueing and loss).
"""

import ctypes
import errno
import fcntl
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.protocols import ETH_P_ALL

from harness.network.links import NetworkError, attempt
from harness.network.namespaces import Namespace

SUBNET = "10.77.0.0/16"
SWITCH = "10.77.255.254"
MOST_NODES = 4096
INTERFACE = "eth0"
MTU_BYTES = 1500
GROUP = 77  # of all interfaces in the switch: one request removes them together
_FIRST_INDEX = 1000  # interface indices are chosen, so that none has to be looked up
_INGRESS = 0xFFFF0000

NODE_SYSCTLS = {
    "net/ipv6/conf/default/disable_ipv6": "1",  # no router solicitations on the links
    "net/ipv4/tcp_no_metrics_save": "1",  # a run must not inherit another's ssthresh
    # packets handed to the link hold 1 ms of the flow's rate, not 64 KB because the round trip
    # is short: a 64 KB packet is 52 ms of a 10 Mbit/s link
    "net/ipv4/tcp_tso_rtt_log": "0",
    "net/ipv4/tcp_rmem": "4096 131072 33554432",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
}
SWITCH_SYSCTLS = NODE_SYSCTLS | {"net/ipv4/ip_forward": "1"}


class Node(NamedTuple):
    namespace: Namespace
    address: str
    port: int  # index of the switch's interface to it; its egress is the downlink
    uplink: int  # index of the ifb


def set_sysctls(values: dict[str, str]) -> None:
    """Set them in the calling thread's namespace; those of newer kernels are left out."""
    for name, value in values.items():
        path = Path("/proc/sys", name)
        if not path.exists():
            continue
        try:
            path.write_text(value)
        except OSError as error:
            raise NetworkError(f"set sysctl {name} to {value}: {error.strerror}") from error


def read_sysctls() -> dict[str, str]:
    """Those that were set, as the calling thread's namespace holds them."""
    paths = {name: Path("/proc/sys", name) for name in SWITCH_SYSCTLS}
    return {
        name: " ".join(path.read_text().split()) if path.exists() else "absent"
        for name, path in paths.items()
    }


def require_empty(ip: IPRoute) -> None:
    """NetworkError when this namespace already has a live interface: it is not ours to change."""
    for link in ip.get_links():
        name = link.get_attr("IFLA_IFNAME")
        if name != "lo" and link["flags"] & 1:
            message = f"interface {name} is up here; a network needs a namespace of its own"
            raise NetworkError(f"bring up a switch: {message}")


def set_up_switch(ip: IPRoute) -> None:
    set_sysctls(SWITCH_SYSCTLS)
    with attempt("set up the switch"):
        ip.link("set", index=1, state="up")
        ip.addr("add", index=1, address=SWITCH, prefixlen=32)


def remove(ip: IPRoute) -> None:
    """Take everything out of the switch again."""
    with attempt("remove the switch's interfaces"):
        ip.link("del", group=GROUP)
        ip.addr("delete", index=1, address=SWITCH, prefixlen=32)


def _mac(side: int, number: int) -> str:
    return f"02:4d:00:{side:02x}:{number >> 8:02x}:{number & 255:02x}"


def add_node(ip: IPRoute, number: int, congestion_control: str) -> Node:
    """Wire node `number` to the switch, which is the calling thread's namespace; unshaped yet."""
    node = Node(
        Namespace.create(),
        f"10.77.{(number + 1) >> 8}.{(number + 1) & 255}",
        _FIRST_INDEX + 2 * number,
        _FIRST_INDEX + 2 * number + 1,
    )
    with node.namespace.entered():
        set_sysctls(NODE_SYSCTLS)  # before eth0 is there: it copies the default of disable_ipv6
    _add_interfaces(ip, number, node)
    route = {"metrics": {"cc_algo": congestion_control}}  # the sysctl is refused in a namespace
    with attempt(f"route to node {number} with congestion control {congestion_control}"):
        ip.neigh("add", dst=node.address, lladdr=_mac(0, number), ifindex=node.port, state=128)
        ip.route("add", dst=node.address, oif=node.port, scope="link", prefsrc=SWITCH, **route)
    with node.namespace.entered(), IPRoute() as inside:
        with attempt(f"set up {INTERFACE} of node {number}"):
            eth0 = socket.if_nametoindex(INTERFACE)
            inside.link("set", index=1, state="up")
            inside.addr("add", index=eth0, address=node.address, prefixlen=32)
            inside.link("set", index=eth0, state="up")
            inside.neigh("add", dst=SWITCH, lladdr=_mac(1, number), ifindex=eth0, state=128)
            onlink = {"gateway": SWITCH, "oif": eth0, "flags": ["onlink"]}
            inside.route("add", dst=SUBNET, prefsrc=node.address, **onlink, **route)
    return node


def _add_interfaces(ip: IPRoute, number: int, node: Node) -> None:
    port, uplink = f"p{number}", f"u{number}"
    peer = {"ifname": INTERFACE, "address": _mac(0, number)}
    peer_there = peer | {"net_ns_fd": node.namespace.descriptor}
    with attempt(f"add veth {port} to node {number}"):
        mine = {"ifname": port, "index": node.port, "address": _mac(1, number)}
        ip.link("add", kind="veth", mtu=MTU_BYTES, group=GROUP, peer=peer_there, **mine)
    with attempt(f"add ifb {uplink}"):
        ip.link("add", kind="ifb", ifname=uplink, index=node.uplink, group=GROUP)
    with attempt(f"redirect what node {number} sends to {uplink}"):
        ip.tc("add", "ingress", node.port, _INGRESS)
        redirect = {"kind": "mirred", "direction": "egress", "action": "redirect"}
        ip.tc(
            "add-filter", "u32", node.port, parent=_INGRESS, prio=1, protocol=ETH_P_ALL,
            target=0x10001, keys=["0x0/0x0+0"], action=redirect | {"ifindex": node.uplink},
        )  # fmt: skip
        ip.link("set", index=node.uplink, state="up")
        ip.link("set", index=node.port, state="up")


def read_congestion_control() -> str:
    """What a TCP flow leaving the calling thread's namespace over its link really runs."""
    with socket.socket() as flow:
        flow.setblocking(False)
        if flow.connect_ex((SWITCH, 9)) not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            raise NetworkError(f"read the congestion control: no route to {SWITCH}")
        name = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def require_known(congestion_control: str) -> None:
    """ValueError when this kernel does not offer `congestion_control`."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if congestion_control not in available:
        offered = ", ".join(available)
        raise ValueError(f"congestion_control must be one of {offered}, got {congestion_control!r}")


def describe(ip: IPRoute) -> dict:
    """Sysctls and interfaces of the calling thread's namespace, which `ip` was opened in."""
    with attempt("read the interfaces"):
        found = {
            link.get_attr("IFLA_IFNAME"): {
                "mtu_bytes": link.get_attr("IFLA_MTU"),
                "gso_max_bytes": link.get_attr("IFLA_GSO_MAX_SIZE"),
            }
            for link in ip.get_links()
        }
    for name, interface in found.items():
        interface |= read_offloads(name)
    return {"sysctls": read_sysctls(), "interfaces": found}


def read_offloads(interface: str) -> dict[str, bool]:
    """Which offloads are on; they are left as the kernel sets them."""
    found = {}
    with socket.socket() as any_socket:
        for name, command in (("tso", 0x1E), ("gso", 0x23), ("gro", 0x2B)):  # ETHTOOL_G...
            value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, 0x8946, request)  # SIOCETHTOOL
            found[name] = bool(struct.unpack("II", value.raw)[1])
    return found
