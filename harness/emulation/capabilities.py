"""Kinds of interface and queue that this kernel offers, each tried in a namespace of its own.

The namespace ends with the trial, and the kernel removes its content.
"""

from collections.abc import Callable

from pyroute2 import IPRoute
from pyroute2.protocols import ETH_P_ALL

from harness.emulation import impairments
from harness.emulation.links import ROOT, NetworkError, attempt, shape
from harness.emulation.namespaces import Namespace

_LOOPBACK = 1  # index of lo in every namespace
_INGRESS = 0xFFFF0000


def _veth(ip: IPRoute) -> None:
    ip.link("add", kind="veth", ifname="try0", peer="try1")


def _ifb(ip: IPRoute) -> None:
    ip.link("add", kind="ifb", ifname="try0")


def _shaper(ip: IPRoute) -> None:
    shape(ip, _LOOPBACK, "lo", rate_mbit=100.0, queue_bytes=1 << 20)


def _redirect(ip: IPRoute) -> None:
    ip.tc("add", "ingress", _LOOPBACK, _INGRESS)
    redirect = {"kind": "mirred", "direction": "egress", "action": "redirect"}
    ip.tc(
        "add-filter", "u32", _LOOPBACK, parent=_INGRESS, prio=1, protocol=ETH_P_ALL,
        target=0x10001, keys=["0x0/0x0+0"], action=redirect | {"ifindex": _LOOPBACK},
    )  # fmt: skip


def _fq(ip: IPRoute) -> None:
    ip.tc("add", "fq", _LOOPBACK, ROOT)


NEEDED: dict[str, Callable[[IPRoute], None]] = {  # by every run
    "veth": _veth,
    "ifb": _ifb,
    "htb + bfifo": _shaper,
    "ingress + u32 + mirred": _redirect,
}
OTHERS: dict[str, Callable[[IPRoute], None]] = {"fq": _fq}


def offered() -> dict[str, str]:
    """Return why each kind and netem is refused, or ""; OSError without CAP_SYS_ADMIN."""
    found = {kind: _refusal(kind, tried) for kind, tried in (NEEDED | OTHERS).items()}
    return found | {"netem": "" if impairments.available() else impairments.MISSING}


def _refusal(kind: str, tried: Callable[[IPRoute], None]) -> str:
    scratch = Namespace.create()
    try:
        with scratch.entered(), IPRoute() as ip, attempt(f"try {kind}"):
            tried(ip)
    except NetworkError as error:
        return str(error)
    finally:
        scratch.close()
    return ""
