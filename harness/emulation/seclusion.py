"""A node as a machine of its own: host name, known addresses, processes, no shared memory.

A network namespace only separates packets. Processes of one machine have other ways to communicate.
TensorPipe, for one, copies from the memory of any process whose number it knows (process_vm_readv),
which no link sees.
"""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from harness.emulation.libc import call
from harness.emulation.user_namespace import MOUNTS, MS_NODEV, MS_NOSUID, PROCESSES, mount_proc

NAMES, MESSAGES = 0x04000000, 0x08000000  # CLONE_NEWUTS, CLONE_NEWIPC
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 1 << 5, 1 << 12
KEPT_FLAGS = 0b1110 | 1 << 10 | 1 << 11  # of a mount, that no remount may drop; as statvfs has them
MS_RELATIME, ST_RELATIME = 1 << 21, 1 << 12
SHARED_MEMORY, HOSTS = "/dev/shm", "/etc/hosts"
TEMPORARY = "/dev/shm/tmp"  # a short path, as sockets need, of a folder of the run


def write_hosts(path: Path, addresses: Sequence[str]) -> None:
    """Write the names of all nodes, as secluded processes resolve them."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for number, address in enumerate(addresses):
        lines += [f"{address} node{number}", f"::ffff:{address} node{number}"]  # as torch asks
    path.write_text("\n".join(lines) + "\n")


def fork() -> int:
    """Fork as os.fork does. The child is process 1 of a new process namespace.

    The kernel kills all processes of the namespace with the child. No process in it can address one
    outside. The calling thread's further children are in its own namespace, as before.
    """
    own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("unshare", PROCESSES)
        forked = os.fork()
        if forked:
            call("setns", own, PROCESSES)
        return forked
    finally:
        os.close(own)


def seclude(node: int, hosts: Path, temporary: Path, read_only: Path) -> None:
    """Put the calling process, made by `fork`, and its children on `node`, without its network.

    The host name is `node0` and so on, which `hosts` resolves. TEMPORARY is the folder `temporary`.
    The folder `read_only` is read-only from here, except `temporary` in it.
    """
    call("unshare", MOUNTS | NAMES | MESSAGES)
    socket.sethostname(f"node{node}")
    mount_proc()
    own = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)  # as no mount below changes or hides it
    call("mount", os.fsencode(hosts), HOSTS.encode(), None, MS_BIND, None)
    _forbid_changes(read_only)
    flags = MS_NOSUID | MS_NODEV
    call("mount", b"shm", SHARED_MEMORY.encode(), b"tmpfs", flags, b"mode=1777")
    os.mkdir(TEMPORARY)
    call("mount", f"/proc/self/fd/{own}".encode(), TEMPORARY.encode(), None, MS_BIND, None)
    os.close(own)


def _forbid_changes(folder: Path) -> None:
    """Make `folder` read-only in the calling process's mount namespace."""
    place, flags = os.fsencode(folder), os.statvfs(folder).f_flag
    kept = flags & KEPT_FLAGS | (MS_RELATIME if flags & ST_RELATIME else 0)
    call("mount", place, place, None, MS_BIND, None)
    call("mount", None, place, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, None)
