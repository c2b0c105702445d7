"""Delay, jitter, loss and reordering of one link direction by netem, and netem's units.

netem has two interfaces of its own, a and b, in the middle of a cable that was cut. It is never
combined with the shaper: netem under HTB starves other classes, and its limit counts packets. It is
never on a sender's stack, where TCP would see loss as a local error. A packet that enters a leaves
b, and the reverse. So b's root qdisc impairs the direction away from a's cable end, and a's the
direction towards it.

Jitter is netem's default: uniform in delay +- jitter, drawn for each packet, so packets may
overtake each other. Reordering sends a share of packets without the delay. netem treats a
segmentation-offload packet of 64 KB as one packet: see `one_packet_each`.
"""

import errno
import math
import subprocess
import sys
from typing import NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

from harness.emulation import tcp_settings, user_namespace
from harness.emulation.links import NetworkError, attempt
from harness.emulation.namespaces import Namespace
from harness.emulation.redirect import redirect
from profiles.base import Link

# Never reached, as socket buffers limit the packets in flight. netem's default of 1000 would drop
# packets at 10 Gbit/s and 2 ms without any configured loss.
LIMIT_PACKETS = 1 << 20
HIGHEST_DELAY_MS = 270_000.0  # 2^32 ticks of 64 ns
HIGHEST_JITTER_MS = 2_000.0  # the kernel draws from 31 bits of ns
HANDLE = 0x20000
_TICKS_PER_US = 15.625
_CERTAIN = 2**32 - 1  # the kernel's probability of 1
_LOOPBACK = 1  # index of lo in every namespace

MISSING = (
    "this kernel has no netem (CONFIG_NET_SCH_NETEM), which delay_ms, jitter_ms, loss and reorder "
    "need: run `modprobe sch_netem` as root of the machine (kernels of Ubuntu and of clouds keep "
    "it in the package linux-modules-extra-$(uname -r)), or boot a kernel that has it; profiles "
    "that only set rates run here"
)


class Impairment(NamedTuple):
    """Settings of netem for one direction, intended or read back; in real time."""

    delay_us: int
    jitter_us: int
    loss: float  # share of packets
    reorder: float  # share of packets
    limit_packets: int

    def agrees(self, other: "Impairment") -> bool:
        """Return True if equal up to kernel rounding: 64 ns ticks, 32-bit probabilities."""
        times = (self.delay_us - other.delay_us, self.jitter_us - other.jitter_us)
        shares = (self.loss - other.loss, self.reorder - other.reorder)
        return (
            max(map(abs, times)) <= 1
            and max(map(abs, shares)) <= 2 / _CERTAIN
            and self.limit_packets == other.limit_packets
        )


def intended(link: Link) -> Impairment:
    """Return netem's settings for `link` (in real time); ValueError beyond what netem can hold."""
    for key, value, highest in (
        ("delay_ms", link.delay_ms, HIGHEST_DELAY_MS),
        ("jitter_ms", link.jitter_ms, min(HIGHEST_JITTER_MS, link.delay_ms)),
    ):
        if not 0 <= value <= highest:
            span = f"[0, {highest}] real ms (emulation.dilation multiplies it)"
            raise ValueError(f"{key} must be in {span}, got {value}")
    for key, value in (("loss", link.loss), ("reorder", link.reorder)):
        if not 0 <= value < 1:
            raise ValueError(f"{key} must be in [0, 1), got {value}")
    times = (round(1000 * link.delay_ms), round(1000 * link.jitter_ms))
    return Impairment(*times, link.loss, link.reorder, LIMIT_PACKETS)


def available() -> bool:
    """Return True if this kernel has netem, tried on the loopback of a temporary namespace.

    The kernel may load its module for it, also for an ordinary user's namespace. Raise OSError if a
    user without CAP_SYS_ADMIN may not make user namespaces.
    """
    try:
        scratch = Namespace.create()
    except PermissionError:
        return _available_to_a_user()
    try:
        with scratch.entered(), IPRoute() as ip, attempt("try netem on a loopback of our own"):
            try:
                ip.tc("add", "netem", _LOOPBACK, HANDLE, limit=LIMIT_PACKETS)
            except NetlinkError as error:
                if error.code == errno.ENOENT:
                    return False
                raise
            return True
    finally:
        scratch.close()


def _available_to_a_user() -> bool:
    """Try netem in a child that is root of a user namespace; PermissionError if that fails."""
    asked = f"import sys; from {__name__} import available; sys.exit(0 if available() else 3)"
    command = user_namespace.command(sys.executable, "-c", asked)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        said = done.stderr.strip().split("\n")[-1]
        raise PermissionError(f"try netem as an ordinary user: {said}")
    return done.returncode == 0


def require() -> None:
    """Raise NetworkError, which says how to get netem, if this kernel has none."""
    if not available():
        raise NetworkError(MISSING)


def join(ip: IPRoute, a_index: int, b_index: int, name: str) -> None:
    """Forward packets between two interfaces, in both directions, and set both up.

    The cable of `a_index` leads to the sender. Its packets are released from the sender's socket,
    as netem does not do this without a delay.
    """
    for here, there, free in ((a_index, b_index, True), (b_index, a_index, False)):
        redirect(ip, here, there, name, free)
        with attempt(f"set up the cable of {name}"):
            ip.link("set", index=here, state="up")


def impair(
    ip: IPRoute, index: int, name: str, link: Link, parent: int = TC_H_ROOT, handle: int = HANDLE
) -> None:
    """Impair the egress of `index`, link `name`; `link` is in real ms, its rate is unused."""
    with attempt(f"add netem to {name}"):
        ip.tc("add", "netem", index, handle, parent=parent, **_options(intended(link)))


def change(
    ip: IPRoute, index: int, name: str, link: Link, parent: int = TC_H_ROOT, handle: int = HANDLE
) -> bool:
    """Change the impairment of `index` while traffic flows; return False if it was set already.

    Packets in netem keep their delay. After a change to a shorter delay later packets may overtake
    them; none is lost.
    """
    asked = intended(link)
    if read(ip, index, name, handle).agrees(asked):
        return False
    with attempt(f"change the netem of {name}"):  # missing options would be reset
        ip.tc("change", "netem", index, handle, parent=parent, **_options(asked))
    return True


def read(ip: IPRoute, index: int, name: str, handle: int = HANDLE) -> Impairment:
    """Return netem's settings of link `name`; NetworkError if netem is missing."""
    with attempt(f"read back the netem of {name}"):
        found = [q for q in ip.get_qdiscs(index) if q["handle"] == handle]
    if not found or found[0].get_attr("TCA_KIND") != "netem":
        raise NetworkError(f"read back the netem of {name}: it is gone or of another kind")
    options = found[0].get_attr("TCA_OPTIONS")
    overtakes = options.get_attr("TCA_NETEM_REORDER")
    # without a gap the kernel reorders nothing, but still reports the last probability
    share = overtakes["prob_reorder"] / _CERTAIN if overtakes and options["gap"] else 0.0
    return Impairment(
        round(options["delay"] / _TICKS_PER_US),
        round(options["jitter"] / _TICKS_PER_US),
        options["loss"] / _CERTAIN,
        share,
        options["limit"],
    )


def one_packet_each(interface: str) -> None:
    """Make `interface`, in the calling thread's namespace, send packets of at most one MTU.

    Otherwise netem would lose up to 44 adjacent TCP segments at once. The kernel then cuts TCP's
    packets in software, at 2.8 times the processor time per byte. Limiting TCP itself to packets of
    one segment (gso_max_segs) would cost 13 times. The receiver needs no change, because a veth
    joins no packets. Raise NetworkError if the kernel refuses.
    """
    try:
        tcp_settings.ethtool(interface, tcp_settings.SET_TSO, 0)
    except OSError as error:
        message = f"turn segmentation offload of {interface} off: {error.strerror}"
        raise NetworkError(message) from error


def _options(asked: Impairment) -> dict[str, float]:
    """Convert settings to pyroute2's units: whole microseconds and percent."""
    return {
        "delay": asked.delay_us,
        "jitter": asked.jitter_us,
        "loss": 100 * asked.loss,
        "prob_reorder": 100 * asked.reorder,
        "gap": math.ceil(asked.reorder),  # 1: every packet may overtake
        "limit": asked.limit_packets,
    }
