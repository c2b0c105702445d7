"""Kinds of interface and queue that this kernel offers, each tried in a namespace of its own.

The namespace ends with the trial, and the kernel removes its content.
"""

from collections.abc import Callable
from typing import Any

from pyroute2 import IPRoute
from pyroute2.protocols import ETH_P_ALL

from harness.emulation import impairments
from harness.emulation.links import ROOT, NetworkError, attempt, shape
from harness.emulation.namespaces import Namespace

_LOOPBACK = 1  # index of lo in every namespace
_INGRESS = 0xFFFF0000


def _redirect(ip: IPRoute) -> None:
    ip.tc("add", "ingress", _LOOPBACK, _INGRESS)
    redirect = {"kind": "mirred", "direction": "egress", "action": "redirect"}
    ip.tc(
        "add-filter", "u32", _LOOPBACK, parent=_INGRESS, prio=1, protocol=ETH_P_ALL,
        target=0x10001, keys=["0x0/0x0+0"], action=redirect | {"ifindex": _LOOPBACK},
    )  # fmt: skip


NEEDED: dict[str, Callable[[IPRoute], Any]] = {  # by every run
    "veth": lambda ip: ip.link("add", kind="veth", ifname="try0", peer="try1"),
    "ifb": lambda ip: ip.link("add", kind="ifb", ifname="try0"),
    "htb + bfifo": lambda ip: shape(ip, _LOOPBACK, "lo", rate_mbit=100.0, queue_bytes=1 << 20),
    "ingress + u32 + mirred": _redirect,
}
OTHERS: dict[str, Callable[[IPRoute], Any]] = {"fq": lambda ip: ip.tc("add", "fq", _LOOPBACK, ROOT)}


def offered() -> dict[str, str]:
    """Return why each kind and netem is refused, or ""; OSError without CAP_SYS_ADMIN."""
    found = {kind: _refusal(kind, tried) for kind, tried in (NEEDED | OTHERS).items()}
    return found | {"netem": "" if impairments.available() else impairments.MISSING}


def _refusal(kind: str, tried: Callable[[IPRoute], Any]) -> str:
    scratch = Namespace.create()
    try:
        with scratch.entered(), IPRoute() as ip, attempt(f"try {kind}"):
            tried(ip)
    except NetworkError as error:
        return str(error)
    finally:
        scratch.close()
    return ""
