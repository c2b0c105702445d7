"""Findings on the kernel: interfaces, queues, congestion controls, and the whole network."""

import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.config.run import Run
from harness.doctor import trial
from harness.doctor.composition import Composition
from harness.doctor.findings import Finding, needed
from harness.emulation import capabilities
from harness.emulation.choices import Packets
from harness.emulation.links import NetworkError
from harness.emulation.topology import Topology
from profiles.base import Profile

ROOT = Path("/")
CLOCK = Path("sys/devices/system/clocksource/clocksource0/current_clocksource")
TCP = Path("/proc/sys/net/ipv4")
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")  # a reading costs microseconds
MODULES = {"veth": "veth", "ifb": "ifb", "htb + bfifo": "sch_htb"} | {
    "ingress + u32 + mirred": "-a sch_ingress cls_u32 act_mirred"
}
GET_NETEM = (
    "sudo modprobe sch_netem (Ubuntu and clouds keep it in linux-modules-extra-$(uname -r)); else "
    "boot a kernel with CONFIG_NET_SCH_NETEM"
)


def kernel(root: Path = ROOT) -> Iterator[Finding]:
    clock = (root / CLOCK).read_text().strip() if (root / CLOCK).exists() else "unknown"
    yield Finding("kernel", "ok", f"Linux {platform.release()}, {around(root)}, clock {clock}")
    if clock in SLOW_CLOCKS:
        means = "readings of the time are slow; short steps are measured badly"
        yield Finding("clock", "warn", clock, means, "boot with clocksource=tsc if the CPU has it")


def around(root: Path) -> str:
    """Return the kind of machine whose file system is at `root`.

    It is WSL, container, user-mode Linux, virtual machine or real machine. Raise OSError if
    proc/version or proc/cpuinfo cannot be read.
    """
    if "microsoft" in (root / "proc/version").read_text().lower():
        return "WSL"
    if any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        return "container"
    processor = (root / "proc/cpuinfo").read_text()
    if "User Mode Linux" in processor:
        return "user-mode Linux"
    flags = [line for line in processor.splitlines() if line.startswith("flags")]
    return "virtual machine" if flags and "hypervisor" in flags[0].split() else "real machine"


def links(asked: Sequence[Composition], enclosed: bool = True) -> Iterator[Finding]:
    """Try each kind of link, then bring each network in use up and down.

    Nothing counts as missing unless a run is `enclosed`, as none is in virtual time.
    """
    networks = trial.asked(asked)
    try:
        tried = trial.attempt(networks)
    except RuntimeError as error:
        means = "no run over packets can start"
        yield Finding("links", needed(enclosed), f"could not be tried: {error}", means)
        return
    refused = {kind: tried.kinds[kind] for kind in capabilities.NEEDED if tried.kinds[kind]}
    for kind, reason in refused.items():
        enable = f"sudo modprobe {MODULES[kind]}, or boot a kernel that has it"
        yield Finding(kind, needed(enclosed), reason, "packets need it", enable)
    if not refused:
        others = [kind for kind in capabilities.OTHERS if not tried.kinds[kind]]
        yield Finding("links", "ok", ", ".join([*capabilities.NEEDED, *others]), "tried")
    yield _netem(not tried.kinds["netem"], asked)
    yield from _networks(networks, tried.networks)
    for each in asked:
        if each.is_on_real_interfaces:
            yield _interface(each.run)


def _interface(run: Run) -> Finding:
    """Check that this machine can take part in a run on real interfaces. Change nothing."""
    name = getattr(run.network, "interface", None)
    try:
        run.network.check(run.nodes, run.profile, run.emulation.dilation)
    except (NetworkError, ValueError, OSError) as refusal:
        return Finding("network", "missing", str(refusal), f"interface {name} cannot be shaped")
    return Finding("network", "ok", f"interface {name}", "there; shaped when all machines met")


def _netem(there: bool, asked: Sequence[Composition]) -> Finding:
    wanted: dict[str, float] = {}
    for each in asked:
        for name, value in each.impairments.items():
            wanted[name] = max(value, wanted.get(name, 0))
    needs = any(each.needs_netem for each in asked)
    if there:
        return Finding("netem", "ok", "delay, jitter, loss and reordering", "tried")
    means = "profiles that only set rates run"
    if wanted:
        means = "the profile has " + ", ".join(f"{key} {most:g}" for key, most in wanted.items())
    elif needs:
        means = "the network asked for adds delays of its own"
    return Finding("netem", needed(needs), "not in this kernel", means, GET_NETEM)


def _networks(tried: Sequence[Composition], refusals: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for every network in use: it came up, or why it did not."""
    for (run, _), refusal in zip(tried, refusals, strict=True):
        profile = getattr(run.profile, "name", None) or type(run.profile).__name__.lower()
        what = f"{run.nodes} nodes, profile {profile}"
        if refusal:
            yield Finding("network", "missing", refusal, f"{what}: did not come up")
        else:
            yield Finding("network", "ok", what, "brought up, read back as intended, removed")


def tcp(asked: Sequence[Composition], settings: Path = TCP) -> Iterator[Finding]:
    """Check congestion controls, and whether buffers hold the bytes in flight on a link."""
    there = (settings / "tcp_available_congestion_control").read_text().split()
    default = (settings / "tcp_congestion_control").read_text().strip()
    networks = [run.network for run, _ in asked if isinstance(run.network, Packets)]
    chosen = {network.congestion_control for network in networks}
    wanted = sorted(filter(None, chosen))
    means = f"the machine's default is {default}; runs use {' '.join(wanted) or 'their own'}"
    yield Finding("congestion", "ok", " ".join(there), means)
    for name in wanted:
        if name not in there:
            enable = f"sudo modprobe tcp_{name}, or network.congestion_control={there[0]}"
            yield Finding(name, "missing", "not offered by this kernel", "asked for", enable)
    pairs = {
        (_under_way_bytes(run.profile), run.network.send_buffer_bytes)
        for run, _ in asked
        if isinstance(run.network, Topology)
    }
    short = [(sent, held) for sent, held in pairs if sent > held / 2]  # the kernel's overhead
    for under_way, buffer_bytes in sorted(short):
        found = f"{under_way / 1e6:.1f} MB may be under way to a peer and back"
        means = f"one flow sends {buffer_bytes / 2e6:.1f} MB at most before it has to wait"
        yield Finding("buffers", "warn", found, means, "raise network.send_buffer_bytes")


def _under_way_bytes(profile: Profile) -> float:
    """Return the bytes in flight of a flow that fills the fastest link, over two links each way."""
    most = profile.extremes()
    return most.highest_mbit * 125 * 4 * most.delay_ms  # emulated rate x time = real rate x time
