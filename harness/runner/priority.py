"""Give a run's ranks processor time before other programs, as far as this user may do so.

Each rank is a session of its own, to which the kernel gives one share. The supervisor raises that
share and gives threads that exchange gradients realtime priority. It ends with the run.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from harness.config.backends import BETWEEN_CPUS

RUN_FIRST = os.SCHED_RR | os.SCHED_RESET_ON_FORK
HIGHEST_WEIGHT, HIGHEST_NICE, GROUP = "10000", "-20", "gradnet-run"
CGROUPS, PROCESSES = Path("/sys/fs/cgroup"), Path("/proc")
# Names of all threads of a rank that exchange gradients: the backend's and ours.
EXCHANGE_THREADS = (*BETWEEN_CPUS.threads, "exchange")


class Priority:
    """Priority of this machine's ranks; `obtained` lists the methods that the kernel allowed."""

    def __init__(self, ranks: Iterable[int]) -> None:
        """Raise the CPU share of the processes in `ranks` that lead their own session."""
        self._ranks = [*filter(_leads, ranks)]
        self._seen = set[str]()
        self._group = _delegated_group(self._ranks)
        weighted = self._group is not None or all([_raised(rank) for rank in self._ranks])
        weight = "cgroup" if self._group else "autogroup"
        self.obtained = ["session", *[weight] * weighted] if self._ranks else []
        self._realtime = weighted and _kernel("sched_rt_runtime_us") not in ("", "-1")
        self.look()
        self.obtained += ["SCHED_RR"] * bool(self._seen)

    def look(self) -> None:
        """Give new exchange threads realtime priority; their own threads do not inherit it."""
        for rank in self._ranks if self._realtime else ():
            folder = PROCESSES / str(rank) / "task"
            with suppress(OSError):  # it has ended, or this needs root
                for thread in set(os.listdir(folder)) - self._seen - {str(rank)}:
                    if (folder / thread / "comm").read_text().startswith(EXCHANGE_THREADS):
                        os.sched_setscheduler(int(thread), RUN_FIRST, os.sched_param(1))
                        self._seen.add(thread)

    def close(self) -> None:
        """Remove the control group; its processes must have ended."""
        if self._group:
            with suppress(OSError):
                self._group.rmdir()


def _leads(rank: int) -> bool:
    """Return True if process `rank` lives and leads a session, so that it shares it with none."""
    with suppress(ProcessLookupError):
        return os.getsid(rank) == rank
    return False


def _raised(rank: int) -> bool:
    """Raise the share of a rank's session; return False if that needs root or has no effect."""
    try:
        (PROCESSES / str(rank) / "autogroup").write_text(HIGHEST_NICE)
    except OSError:
        return False
    return _kernel("sched_autogroup_enabled") == "1"


def _kernel(setting: str) -> str:
    """Return the value of a kernel setting; "" if this kernel lacks it."""
    path = PROCESSES / "sys/kernel" / setting
    return path.read_text().strip() if path.exists() else ""


def _delegated_group(ranks: list[int]) -> Path | None:
    """Return a new control group beside ours with all `ranks`; None if we may not make one."""
    lines = (PROCESSES / "self/cgroup").read_text().splitlines()
    own = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    group = (CGROUPS / own).parent / GROUP
    if not own or own.startswith("..") or not ranks:
        return None
    try:
        group.mkdir(exist_ok=True)
        with (group / "cpu.weight").open("r+") as weight:  # the file must exist
            weight.write(HIGHEST_WEIGHT)
        for rank in ranks:
            (group / "cgroup.procs").write_text(str(rank))
        return group
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
