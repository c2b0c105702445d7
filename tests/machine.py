"""One of several machines that tests run on side by side: `python -m tests.machine ARGUMENTS...`.

Runs Python with ARGUMENTS as process 1 of process and mount namespaces of its own, with a /proc,
a /dev/shm and a /run/lock that show nothing of the others; tests/conftest.py adds a network. So a
test that looks for what was left behind finds its own alone, and whole runs, of which a machine
holds one at a time, go side by side. As another user than root it changes nothing, and whole runs
take turns.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

from pyroute2 import IPRoute

from harness.emulation.libc import call
from harness.emulation.namespaces import CLONE_NEWNET
from harness.emulation.user_namespace import enter
from harness.locks import PLACES


def main() -> NoReturn:
    if os.geteuid() == 0:
        enter(own_network=False)
        for place in ("/dev/shm", *filter(Path.is_dir, PLACES[:1])):
            call("mount", b"tmpfs", os.fsencode(place), b"tmpfs", 0, None)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def own_network() -> None:
    """Put the calling thread, and what it starts, into a network that has a loopback alone."""
    if os.geteuid() != 0:
        return
    call("unshare", CLONE_NEWNET)
    with IPRoute() as ip:
        ip.link("set", index=1, state="up")


if __name__ == "__main__":
    main()
