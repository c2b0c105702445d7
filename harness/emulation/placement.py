"""The machine that leads a run, according to its launcher: torchrun, Slurm, a job's yaml."""

import os
import socket
import subprocess
from functools import cache
from ipaddress import IPv4Address

MASTER, NODES = "MASTER_ADDR", "SLURM_JOB_NODELIST"
NEEDED = "master must be the IPv4 address of machine 0"
SAID_S = 10.0  # for scontrol to answer


@cache
def master() -> str:
    """Return the IPv4 address of machine 0: MASTER_ADDR's, or Slurm's first node's. ValueError.

    Slurm's own address of a node counts (NodeAddr), as machines often say 127.0.1.1.
    """
    if named := os.environ.get(MASTER):
        return _address(named, MASTER)
    nodes = os.environ.get(NODES)
    if not nodes:
        raise ValueError(f"{NEEDED}, got null, and neither {MASTER} nor {NODES} is set")
    first = _scontrol("hostnames", nodes).split()[0]
    fields = dict(each.partition("=")[::2] for each in _scontrol("node", "-o", first).split())
    return _address(fields.get("NodeAddr") or first, f"the first of {NODES}")


def _scontrol(*asked: str) -> str:
    """Return the output of `scontrol show`. Raise ValueError if it fails."""
    command = ["scontrol", "show", *asked]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SAID_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{NEEDED}, got null, and `{' '.join(command)}` failed: {error}") from None
    return done.stdout


def _address(name: str, said_by: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    except OSError as error:
        raise ValueError(f"{NEEDED}, got {name} by {said_by}: {error}") from None
    if IPv4Address(found).is_loopback:
        raise ValueError(f"{NEEDED}, got {name} by {said_by}, which is {found}; write it yourself")
    return str(found)
