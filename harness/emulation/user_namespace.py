"""Namespaces of one's own for a process and all that it starts: they end with it.

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
    """Return as process 1 of new namespaces, of mounts, of processes, and of the network if so.

    The calling process, which must have one thread, stays outside, waits, and exits as process 1
    does, or with SHELL_SIGNAL plus the signal that ended it. The kernel kills process 1, and
    everything in its namespaces with it, when the outer one dies. A user other than root becomes
    root of a user namespace. OSError, still outside, when the kernel refuses.
    """
    kinds = MOUNTS | PROCESSES | (CLONE_NEWNET if own_network else 0)
    if os.geteuid() == 0:
        call("unshare", kinds)
    else:
        become_root(kinds)
    if inside := os.fork():
        _end_as(inside)
    die_with_parent()
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    mount_proc()


def mount_proc() -> None:
    """Show the processes of the calling process's namespace in /proc, and no others."""
    call("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal the calling process as soon as the one that forked it is gone."""
    call("prctl", PR_SET_PDEATHSIG, by)


def command(*words: str) -> list[str]:
    """Command that runs `words` in namespaces of its own."""
    return [sys.executable, "-m", "harness.emulation.user_namespace", *words]


@cache
def refused() -> str:
    """The kernel's objection to a run's namespaces, by starting some; "" when it works."""
    tried = command(sys.executable, "-c", "")
    try:
        done = subprocess.run(tried, capture_output=True, text=True, timeout=TRY_S)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(tried)}` did not end within {TRY_S} s"
    said = done.stderr.strip().splitlines()
    return (said[-1] if said else f"status {done.returncode}") if done.returncode else ""


def become_root(kinds: int = 0) -> None:
    """Root of a user namespace, which owns the new namespaces of other `kinds`."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", USER | kinds)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")  # the kernel's condition for the next but one
    (own / "uid_map").write_text(f"0 {user} 1")
    (own / "gid_map").write_text(f"0 {group} 1")


def _end_as(inside: int) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # process 1 is told too; its end is what counts
    os._exit(shell_status(os.waitpid(inside, 0)[1]))


def shell_status(wait_status: int) -> int:
    """Shell's exit status for waitpid(2)'s: the code, or SHELL_SIGNAL plus the signal's number."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else SHELL_SIGNAL - code


def main() -> NoReturn:
    """Run the command that the arguments are."""
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
