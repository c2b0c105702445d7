"""Namespaces of a process and all that it starts, which end with it.

`python -m harness.emulation.user_namespace COMMAND...` runs COMMAND as process 1 of them.
"""

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

from harness.emulation.libc import call
from harness.emulation.namespaces import CLONE_NEWNET

TRY_S = 10.0
MOUNTS, PROCESSES, USER = 0x00020000, 0x20000000, 0x10000000  # CLONE_NEW…
SHELL_SIGNAL = 128  # plus a signal's number: how a shell tells of a process that it ended
PR_SET_PDEATHSIG = 1
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18


def enter(own_network: bool = True) -> None:
    """Return as process 1 of new mount and process namespaces, and of a network if wanted.

    The calling process must have one thread. It stays outside, waits, and exits as process 1 does,
    or with SHELL_SIGNAL plus the signal that ended it. If it dies, the kernel kills process 1 and
    everything in its namespaces. A user other than root becomes root of a user namespace. OSError,
    still outside, if the kernel refuses.
    """
    kinds = MOUNTS | PROCESSES | (CLONE_NEWNET if own_network else 0)
    if os.geteuid() == 0:
        call("unshare", kinds)
    else:
        become_root(kinds)
    if inside := os.fork():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # process 1 is told too; its end is what counts
        os._exit(shell_status(os.waitpid(inside, 0)[1]))
    die_with_parent()
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    mount_proc()


def mount_proc() -> None:
    """Show only the processes of the calling process's namespace in /proc."""
    call("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal the calling process as soon as its parent is gone."""
    call("prctl", PR_SET_PDEATHSIG, by)


def command(*words: str) -> list[str]:
    """Return a command that runs `words` in namespaces of its own."""
    return [sys.executable, "-m", "harness.emulation.user_namespace", *words]


@cache
def refused() -> str:
    """Return the kernel's objection to a run's namespaces, by trial. Empty if they work."""
    tried = command(sys.executable, "-c", "")
    try:
        done = subprocess.run(tried, capture_output=True, text=True, timeout=TRY_S)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(tried)}` did not end within {TRY_S} s"
    said = done.stderr.strip().splitlines()
    return (said[-1] if said else f"status {done.returncode}") if done.returncode else ""


def become_root(kinds: int = 0) -> None:
    """Become root of a user namespace, which owns the new namespaces of other `kinds`."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", USER | kinds)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")  # the kernel's condition for the next but one
    (own / "uid_map").write_text(f"0 {user} 1")
    (own / "gid_map").write_text(f"0 {group} 1")


def shell_status(wait_status: int) -> int:
    """Convert waitpid(2)'s status to a shell's: the code, or SHELL_SIGNAL plus the signal."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else SHELL_SIGNAL - code


def main() -> NoReturn:
    """Run the command in the arguments."""
    words = sys.argv[1:]
    if not words:
        sys.exit("usage: python -m harness.emulation.user_namespace COMMAND...")
    try:
        enter()
    except OSError as refusal:
        sys.exit(refusal.strerror)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"{words[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
