"""A process's node as a machine of its own: name, addresses of the others, no shared memory."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from harness.emulation.libc import call
from harness.emulation.user_namespace import MOUNTS, MS_NODEV, MS_NOSUID

NAMES, MESSAGES = 0x04000000, 0x08000000  # CLONE_NEWUTS, CLONE_NEWIPC
MS_BIND = 1 << 12
SHARED_MEMORY, HOSTS = "/dev/shm", "/etc/hosts"
TEMPORARY = "/dev/shm/tmp"  # a short path, as sockets need, of a folder of the run


def write_hosts(path: Path, addresses: Sequence[str]) -> None:
    """Names of all nodes, as secluded processes resolve them."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for number, address in enumerate(addresses):
        lines += [f"{address} node{number}", f"::ffff:{address} node{number}"]  # as torch asks
    path.write_text("\n".join(lines) + "\n")


def seclude(node: int, hosts: Path, temporary: Path) -> None:
    """Put the calling process, and what it starts, on `node` but for its network.

    Its host name is `node0` and so on, which `hosts` resolves; TEMPORARY is `temporary`.
    """
    call("unshare", MOUNTS | NAMES | MESSAGES)
    socket.sethostname(f"node{node}")
    flags = MS_NOSUID | MS_NODEV
    call("mount", b"shm", SHARED_MEMORY.encode(), b"tmpfs", flags, b"mode=1777")
    os.mkdir(TEMPORARY)
    call("mount", os.fsencode(temporary), TEMPORARY.encode(), None, MS_BIND, None)
    call("mount", os.fsencode(hosts), HOSTS.encode(), None, MS_BIND, None)
