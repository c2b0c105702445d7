"""Findings on permissions: whether this user gets the namespaces that every run needs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.doctor.findings import Finding, needed
from harness.emulation import user_namespace

PROC = Path("/proc")
NET_ADMIN, SYS_ADMIN = 12, 21  # bits of a capability set
ENOUGH = 15_000  # namespaces of a kind that a user may have, where a limit is to be raised
DOCKER = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined"
CONTAINER = f"in a container: start it with `docker run --privileged`, or {DOCKER} " + (
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)


class Switch(NamedTuple):
    """A sysctl that forbids something a run needs."""

    name: str
    value: str
    means: str
    enable: str


def closed_switches(proc: Path, namespaces: int, root: bool) -> list[Switch]:
    """Return sysctls under `proc` that forbid this user `namespaces` network namespaces."""
    found = []
    if not root:
        found += _switch(proc, "kernel.unprivileged_userns_clone", "0", "1")
        found += _switch(proc, "kernel.apparmor_restrict_unprivileged_userns", "1", "0")
    kinds = {"net": namespaces, "mnt": 1, "pid": 1} | ({} if root else {"user": 1})
    for kind, least in kinds.items():
        name = f"user.max_{kind}_namespaces"
        value = _read(proc, name)
        if value is not None and int(value) < least:
            command = _sysctl(name, str(max(ENOUGH, 2 * least)))
            found.append(Switch(name, value, f"a run needs {least} or more", command))
    return found


def _switch(proc: Path, name: str, closed: str, opened: str) -> list[Switch]:
    if _read(proc, name) != closed:
        return []
    means = "this distribution keeps user namespaces from ordinary users"
    return [Switch(name, closed, means, _sysctl(name, opened))]


def _sysctl(name: str, value: str) -> str:
    return f"sudo sysctl -w {name}={value} (and in /etc/sysctl.d/ to last)"


def _read(proc: Path, name: str) -> str | None:
    path = proc / "sys" / name.replace(".", "/")
    return path.read_text().strip() if path.exists() else None


def capabilities(proc: Path) -> dict[str, bool]:
    """Return the two capabilities that namespaces and links need, if this process has them."""
    lines = (proc / "self/status").read_text().splitlines()
    [held] = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    bits = {"CAP_NET_ADMIN": NET_ADMIN, "CAP_SYS_ADMIN": SYS_ADMIN}
    return {name: bool(held >> bit & 1) for name, bit in bits.items()}


def user() -> Iterator[Finding]:
    """Return a finding on the current user and the user's capabilities."""
    if os.geteuid() != 0:
        means = "runs get their namespaces through a user namespace"
        yield Finding("user", "ok", f"ordinary user {os.geteuid()}", means)
        return
    held = capabilities(PROC)
    lacking = [name for name, there in held.items() if not there]
    if lacking:
        found, means = f"root without {' and '.join(lacking)}", "a container's root, it seems"
        yield Finding("user", "warn", found, means, CONTAINER)
    else:
        yield Finding("user", "ok", f"root, with {' and '.join(held)}")


def namespaces(most_nodes: int, asked: bool = True) -> Iterator[Finding]:
    """Try the command that encloses a run. If it fails, name the switches that forbid it.

    Nothing counts as missing unless namespaces are `asked` for, as they are not in virtual time.
    """
    without = "no run over packets can start; there is network=simulated"
    switches = closed_switches(PROC, most_nodes + 1, os.geteuid() == 0)
    refusal = user_namespace.refused()
    if not refusal:
        yield Finding("namespaces", "ok", "network, mount and process namespaces", "tried")
    elif not switches:
        advice = CONTAINER if os.geteuid() == 0 else f"run as root; or, {CONTAINER}"
        yield Finding("namespaces", needed(asked), refusal, without, advice)
    else:
        yield Finding("namespaces", needed(asked), refusal, f"{without}; see the next lines")
    for switch in switches:
        yield Finding(switch.name, needed(asked), switch.value, switch.means, switch.enable)
