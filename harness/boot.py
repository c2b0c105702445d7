"""Which boot of the machine this is."""

from pathlib import Path


def boot_id() -> str:
    """Changes with every boot: tells a live process id from one of an earlier life."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
