"""Choices of `conf/network` that are brought up on this machine or on several."""

from harness.emulation.host import Host
from harness.emulation.topology import Topology

Packets = Topology | Host
