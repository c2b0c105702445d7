"""Processes of the nodes, identified by their network namespaces."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.emulation.network import Network

NOT_OF_A_COMMAND = ("iperf3",)  # competes there


class NodeProcess(NamedTuple):
    pid: int
    node: int
    name: str


def of_nodes(network: Network) -> Iterator[NodeProcess]:
    """Return all live processes of the nodes in this process namespace."""
    numbers = {}
    for node in network.local:
        with network.entered(node):
            numbers[os.readlink("/proc/thread-self/ns/net")] = node
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (where := os.readlink(entry / "ns" / "net")) in numbers:
                name = (entry / "comm").read_text().strip()
                if name not in NOT_OF_A_COMMAND:
                    yield NodeProcess(int(entry.name), numbers[where], name)
        except OSError:
            continue  # it has ended
