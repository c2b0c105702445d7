"""Namespaces of one's own: separate, with all the rights in them, ended with either process."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness.emulation import user_namespace
from tests.launching import ROOT, processes, until

pytestmark = pytest.mark.launch

ORDINARY = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
KINDS = ("net", "mnt", "pid")


def inside(script: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, *user_namespace.command("sh", "-c", script)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("user", ["own", "ordinary"])
def test_it_is_process_1_of_spaces_of_its_own_with_all_rights_there(user: str) -> None:
    before = ORDINARY if user == "ordinary" else []
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    links = " ".join(f"/proc/self/ns/{kind}" for kind in KINDS)
    seen_there = "echo $$ $(id -u) $(ls /proc | grep -c '^[0-9]*$')"
    rights = "mount -t tmpfs x /mnt && ip link set lo up"
    done = inside(f"{seen_there}; readlink {links}; {rights}", tuple(before))
    assert done.returncode == 0, done.stderr
    identity, *spaces = done.stdout.splitlines()
    pid, uid, seen = identity.split()
    assert (pid, uid) == ("1", "0") and int(seen) < 10
    assert not {*spaces} & {os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}
    assert not os.path.ismount("/mnt")


@pytest.mark.parametrize("code", [0, 3])
def test_it_exits_as_its_command_does(code: int) -> None:
    assert inside(f"exit {code}").returncode == code


def test_a_command_that_a_signal_ends_is_told_as_a_shell_does() -> None:
    running = subprocess.Popen(user_namespace.command("sleep", "1021"), cwd=ROOT)
    [process] = until(lambda: sleeping("1021"), "process 1")  # type: ignore[misc]
    os.kill(process, signal.SIGKILL)
    assert running.wait(10) == user_namespace.SHELL_SIGNAL + signal.SIGKILL


def test_kill_9_of_the_outer_process_ends_the_inner_ones() -> None:
    running = subprocess.Popen(user_namespace.command("sh", "-c", "sleep 1022; true"), cwd=ROOT)
    until(lambda: sleeping("1022"), "what process 1 has started")
    running.kill()
    running.wait()
    until(lambda: not sleeping("1022"), "its end")


def sleeping(seconds: str) -> list[int]:
    return [pid for pid in processes(f"sleep {seconds}") if _is(pid, "sleep")]


def _is(pid: int, name: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == name
    except OSError:
        return False


def test_what_is_no_command_is_told_by_name() -> None:
    done = subprocess.run(
        user_namespace.command("nonesuch"), cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr == "nonesuch: No such file or directory\n"
