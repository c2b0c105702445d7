"""Which boot of the machine this is."""

import subprocess
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MACOS = ["sysctl", "-n", "kern.bootsessionuuid"]


def boot_id() -> str:
    """Changes with every boot: tells a live process id from one of an earlier life."""
    if _LINUX.exists():
        return _LINUX.read_text().strip()
    return subprocess.run(_MACOS, capture_output=True, text=True, check=True).stdout.strip()
