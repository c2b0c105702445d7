"""Offloads of an interface, by the ioctl that ethtool(8) uses."""

import ctypes
import fcntl
import socket
import struct

GET_TSO, GET_GSO, GET_GRO, SET_TSO = 0x1E, 0x23, 0x2B, 0x1F  # ETHTOOL_GTSO ...
_SIOCETHTOOL = 0x8946
_VALUE = struct.Struct("II")  # a command, and the value it sets or returns


def ask(interface: str, command: int, value: int = 0) -> int:
    """Run an ethtool `command` on an interface of the calling thread's namespace; OSError."""
    held = ctypes.create_string_buffer(_VALUE.pack(command, value), _VALUE.size)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(held))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    return int(_VALUE.unpack(held.raw)[1])
