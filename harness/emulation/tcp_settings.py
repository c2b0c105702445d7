"""TCP settings of the namespaces: sysctls, congestion control, offloads; set and read back."""

import ctypes
import errno
import fcntl
import socket
import struct
from pathlib import Path

from harness.emulation.links import NetworkError

PINNED = {
    "net/ipv6/conf/default/disable_ipv6": "1",  # no router solicitations on the links
    "net/ipv4/tcp_no_metrics_save": "1",  # a run must not inherit another's ssthresh
    # packets handed to the link hold 1 ms of the flow's rate, not 64 KB because the round trip
    # is short: a 64 KB packet is 52 ms of a 10 Mbit/s link
    "net/ipv4/tcp_tso_rtt_log": "0",
}
FORWARDING = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",  # over a trunk, the way back is another interface
    "net/ipv4/conf/default/rp_filter": "0",
}
BUFFERS = {"net/ipv4/tcp_rmem": "4096 131072 {}", "net/ipv4/tcp_wmem": "4096 16384 {}"}
GET_TSO, GET_GSO, GET_GRO, SET_TSO = 0x1E, 0x23, 0x2B, 0x1F  # ETHTOOL_GTSO ...
_SIOCETHTOOL = 0x8946
_VALUE = struct.Struct("II")  # a command, and the value it sets or returns


def sysctls(receive_buffer_bytes: int, send_buffer_bytes: int) -> dict[str, str]:
    """Return the sysctls of every namespace, by name. Sizes are maxima of one socket, in bytes."""
    sizes = (receive_buffer_bytes, send_buffer_bytes)
    sized = {
        name: text.format(size) for (name, text), size in zip(BUFFERS.items(), sizes, strict=True)
    }
    return PINNED | sized


def set_sysctls(values: dict[str, str]) -> None:
    """Write each sysctl, by name below /proc/sys, in the calling thread's network namespace.

    Names that this kernel lacks are skipped. Raise NetworkError if the kernel refuses a value.
    """
    for name, value in values.items():
        path = Path("/proc/sys", name)
        if not path.exists():
            continue
        try:
            path.write_text(value)
        except OSError as error:
            raise NetworkError(f"set sysctl {name} to {value}: {error.strerror}") from error


def read_sysctls() -> dict[str, str]:
    """Return the value of each sysctl that this module sets, by name, as the kernel has it now.

    The calling thread's network namespace is read. Runs of spaces become one space. A sysctl that
    this kernel lacks has the value "absent".
    """
    paths = {name: Path("/proc/sys", name) for name in (*PINNED, *FORWARDING, *BUFFERS)}
    return {
        name: " ".join(path.read_text().split()) if path.exists() else "absent"
        for name, path in paths.items()
    }


def congestion_control_to(address: str) -> str:
    """Return the congestion control of a TCP flow from this thread's namespace to `address`.

    Open a socket to port 9 for it, without waiting. Raise NetworkError if there is no route.
    """
    with socket.socket() as flow:
        flow.setblocking(False)
        if flow.connect_ex((address, 9)) not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            raise NetworkError(f"read the congestion control: no route to {address}")
        name = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def require_known(**names: str) -> None:
    """Raise ValueError, naming the key, for a congestion control that this kernel lacks."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    for key, name in names.items():
        if name not in available:
            raise ValueError(f"{key} must be one of {', '.join(available)}, got {name!r}")


def read_offloads(interface: str) -> dict[str, bool]:
    """Return {"tso", "gso", "gro"} of an interface, each True if it is on."""
    asked = {"tso": GET_TSO, "gso": GET_GSO, "gro": GET_GRO}
    return {name: bool(ethtool(interface, command)) for name, command in asked.items()}


def ethtool(interface: str, command: int, value: int = 0) -> int:
    """Run an ethtool `command` in this namespace; return its value. OSError if it is refused."""
    held = ctypes.create_string_buffer(_VALUE.pack(command, value), _VALUE.size)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(held))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    return int(_VALUE.unpack(held.raw)[1])
