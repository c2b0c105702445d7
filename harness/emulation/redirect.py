"""Redirection from one interface to another, by u32 and mirred, also free of the socket.

A packet belongs to its sending socket, across namespaces, until an IP stack receives it. That
socket sees queues before that: TCP small queues limits it to 1 ms of the rate in the queue, so the
queue never fills or drops. A clone belongs to no socket, and redirecting it frees the original.
"""

from types import SimpleNamespace
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.tcmsg import act_mirred
from pyroute2.netlink.rtnl.tcmsg.common import tc_actions
from pyroute2.netlink.rtnl.tcmsg.common_act import plugins
from pyroute2.protocols import ETH_P_ALL

from harness.emulation.links import attempt

INGRESS = 0xFFFF0000
_ALL = 0x10001  # a class id, which ingress ignores


def _mirred_parameters(action: dict[str, Any]) -> dict[str, Any]:
    """Return mirred's parameters, with `then` as the original packet's fate, if it is given."""
    found = act_mirred.get_parameters(action)
    if then := action.get("then"):
        found["attrs"][0][1]["action"] = tc_actions[then]
    return found


plugins["mirred"] = SimpleNamespace(options=act_mirred.options, get_parameters=_mirred_parameters)


def redirect(ip: IPRoute, here: int, there: int, name: str, free: bool = False) -> None:
    """Redirect all that enters interface `here` to leave `there`, on link `name`.

    `free` detaches packets from the sockets that sent them.
    """
    action = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": there}
    if free:
        # mirred sends a clone unless it may keep the packet; this code, the one of a bpf program
        # that chose a target, then drops the original, as none was chosen (gact is often missing)
        action |= {"then": "redirect"}
    with attempt(f"redirect what enters {name}"):
        ip.tc("add", "ingress", here, INGRESS)
        ip.tc(
            "add-filter", "u32", here, parent=INGRESS, prio=1, protocol=ETH_P_ALL,
            target=_ALL, keys=["0x0/0x0+0"], action=action,
        )  # fmt: skip
