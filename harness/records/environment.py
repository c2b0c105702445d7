"""Environment of a result beside its configuration: code, versions, machine, network."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.records.run_directory import read_json, write_json
from harness.records.status import boot_id

PACKAGES = ("torch", "torchvision", "numpy", "numba", "pyroute2", "hydra-core")
COMPILES = (
    "kernels of compressors are compiled at their first use, once on this machine: "
    "half a minute of one core"
)
CHECKOUT = Path(__file__).resolve().parents[2]
ALL_USERS = (1 << 32) - 1
ALLOCATOR = {
    # Fresh tensors above 32 MB would be page-faulted at every use; the same for every method.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "OMP_NUM_THREADS": "1",
}


def describe() -> dict[str, Any]:
    """Return facts on the machine and the checkout, as known before a network exists."""
    from compressors import kernels  # imports torch, which a report does not need

    return {
        **origin(),
        "versions": versions(),
        "kernel": platform.release(),
        "kernels": kernels.path(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg(),
        "root": _is_root(),
        "boot_id": boot_id(),
        "environment": {key: os.environ.get(key) for key in ALLOCATOR},
    }


def origin() -> dict[str, Any]:
    """Return the commit of this checkout and the processor of this machine."""
    return {"git": _git(), "cpu": _cpu()}


def add(run_dir: Path, **facts: Any) -> None:
    """Add `facts` to environment.json of `run_dir`."""
    path = run_dir / "environment.json"
    write_json(path, (read_json(path) or {}) | facts)


def to_compile() -> str:
    """Return a warning that the first use of a compressor compiles kernels; "" if it does not."""
    from compressors import kernels  # imports torch, which a report does not need

    return COMPILES if kernels.to_compile() else ""


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that results depend on, None if missing."""
    return {name: _version(name) for name in PACKAGES} | {"python": platform.python_version()}


def machine() -> str:
    """Return the processor's name and the number of cores, as text."""
    return f"{_cpu()}, {os.cpu_count()} cores"


def _is_root() -> bool:
    """Return True for root of the machine, False for root of a user namespace only."""
    if not Path("/proc/self/uid_map").exists():
        return os.geteuid() == 0
    inside, outside, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    return os.geteuid() == 0 and (inside, outside, count) == (0, 0, ALL_USERS)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(here: Path = CHECKOUT) -> dict[str, Any] | None:
    """Return {"commit", "dirty"} of the checkout `here`, or None outside a checkout.

    `dirty` is True if files differ from the commit, and None without the program git.
    """
    command = ["git", "-C", str(here)]
    try:
        commit = _output([*command, "rev-parse", "HEAD"])
        return {"commit": commit, "dirty": bool(_output([*command, "status", "--porcelain"]))}
    except FileNotFoundError:
        found = _head(here / ".git")
        return {"commit": found, "dirty": None} if found else None
    except (OSError, subprocess.CalledProcessError):
        return None


def _head(folder: Path) -> str | None:
    """Return the commit that a checkout's folder .git names, or None if it names none."""
    try:
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (loose := folder / name).exists():
            return loose.read_text().strip()
        packed = (line.split() for line in (folder / "packed-refs").read_text().splitlines())
        return next((line[0] for line in packed if line[1:] == [name]), None)
    except OSError:
        return None


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _cpu() -> str:
    told = Path("/proc/cpuinfo")
    for line in told.read_text().splitlines() if told.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
