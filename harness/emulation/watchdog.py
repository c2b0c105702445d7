"""Guard of an interface, which restores it when its run dies or its time is up.

It is a process of its own session, started before the interface is touched and outside of every
namespace that ends with the run.
"""

import os
import select
import signal
import syslog
import time
from pathlib import Path
from typing import NoReturn

from setproctitle import setproctitle

from harness.emulation import ledger
from harness.emulation.links import NetworkError

OWNER = "GRADNET_GUARD"  # environment variable of the guarded: the name of its guard


def leave_behind(path: Path, limit_s: float) -> None:
    """Fork a watchdog that restores the interface of ledger `path` when this process ends.

    It also restores it `limit_s` seconds after the loan began. Return at once. The watchdog is a
    grandchild in its own session, so the caller never waits for it. Set the environment variable
    OWNER of this process to the name of its watchdog.
    """
    owner = f"{os.getpid()}.{time.clock_gettime_ns(time.CLOCK_BOOTTIME)}"
    process = os.pidfd_open(os.getpid())
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            _detach(path, process)
            _guard(process, path, owner, limit_s)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(process)
    os.environ[OWNER] = owner


def _detach(path: Path, process: int) -> None:
    """Release everything of the run but the descriptor `process`: terminal, folder, files.

    Ignore SIGINT, SIGTERM and SIGHUP, and set the process title.
    """
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.closerange(3, process)
    os.closerange(process + 1, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the run gets it too, and its end counts
    setproctitle(f"harness: watchdog of {path.name.removesuffix(ledger.SUFFIX)}")


def _guard(process: int, path: Path, owner: str, limit_s: float) -> NoReturn:
    """Wait for the end of the run or of its time, restore the interface, and exit.

    `process` is a pidfd of the run. What was restored goes to the syslog. After `limit_s` the
    interface is restored while the run lives. The exit status is 0, or 1 if restoring failed.
    """
    syslog.openlog("gradnet", syslog.LOG_PID)
    ended = select.poll()
    ended.register(process, select.POLLIN)
    try:
        while not ended.poll(1000 * _next_look_s(path, owner, limit_s)):
            if ledger.left_s(path, owner) == 0:
                for line in ledger.restore_from_living(path):
                    syslog.syslog(syslog.LOG_WARNING, f"removed after {limit_s} s: {line}")
        for line in ledger.wait_and_settle(path, owner):
            syslog.syslog(syslog.LOG_WARNING, f"removed after the run died: {line}")
    except (NetworkError, OSError) as error:
        syslog.syslog(syslog.LOG_ERR, f"{error}; run python -m harness.doctor --clean")
        os._exit(1)
    os._exit(0)


def _next_look_s(path: Path, owner: str, limit_s: float) -> float:
    """Return seconds until the loan of `owner` may be up; `limit_s` without such a loan."""
    left_s = ledger.left_s(path, owner)
    return limit_s if left_s is None else left_s + 0.001  # poll cuts to whole milliseconds
