"""Findings on system programs that runs start: present, and new enough."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from harness.doctor.composition import Composition
from harness.doctor.findings import Finding, needed

IPERF3_LEAST = (3, 9)
TRY_S = 10.0


def programs(asked: Sequence[Composition]) -> Iterator[Finding]:
    flows = max((run.profile.extremes().flows for run, _ in asked), default=0)
    competing = f"the profile's {flows} competing flows" if flows else "competing flows"
    yield _program("iperf3", "iperf3", flows > 0, competing, IPERF3_LEAST)


def _program(
    name: str, package: str, asked: bool, purpose: str, least: tuple[int, int] = (0, 0)
) -> Finding:
    enable = f"sudo apt-get install {package}"
    path = shutil.which(name)
    if path is None:
        return Finding(name, needed(asked), "not found in PATH", purpose, enable)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=TRY_S)
    number = re.search(r"(\d+)\.(\d+)", said.stdout)
    if number is None:
        return Finding(name, "warn", "could not tell its version", purpose)
    version = f"{number[1]}.{number[2]}"
    if (int(number[1]), int(number[2])) < least:
        wanted = f"{least[0]}.{least[1]}"
        return Finding(name, needed(asked), f"{version}, older than {wanted}", purpose, enable)
    return Finding(name, "ok", version, purpose)
