"""However a run on a real interface ends, the interface is as it was before."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from harness.emulation import ledger, links
from harness.emulation.nic_lease import Loan, lease
from tests.emulation import machines
from tests.emulation.inside import inside
from tests.emulation.machines import CONTROL_PORT, INTERFACE, address
from tests.launching import until

MARK = "4d4e:"


@contextmanager
def machine() -> Iterator[tuple[Path, str]]:
    """Live on one of two machines; yields its ledger's path and the state of its network."""
    with machines.pair() as (here, _), here.entered(), tempfile.TemporaryDirectory() as folder:
        yield ledger.path_of(Path(folder), INTERFACE), machines.state()


def restored(path: Path, before: str) -> None:
    until(lambda: not path.exists(), "the ledger is removed", 20)
    assert machines.state() == before


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def clean(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.doctor", "--clean", *options]
    return subprocess.run([*command, "--ledger", str(path.parent), "--results", str(path.parent)],
                          capture_output=True, text=True, timeout=30)  # fmt: skip


@inside
def test_a_run_that_ends_or_is_interrupted_restores_by_itself() -> None:
    for end in (None, signal.SIGINT, signal.SIGTERM):
        with machine() as (path, before):
            run = machines.run(path)
            assert machines.guard() and len(machines.guards()) == 1
            assert MARK in machines.state() and path.exists()
            if end is None:
                run.stdin.close()
            else:
                run.send_signal(end)
            run.wait(20)
            assert not path.exists()
            assert machines.state() == before
            until(lambda: not machines.guards(), "the watchdog ends by itself", 20)


@inside
def test_the_watchdog_restores_after_kill_9_of_the_run() -> None:
    with machine() as (path, before):
        run = machines.run(path)
        run.kill()
        restored(path, before)


@inside
def test_clean_restores_after_kill_9_of_the_run_and_its_watchdog() -> None:
    with machine() as (path, before):
        run = machines.run(path)
        kill(machines.guard())
        refused = clean(path)
        assert refused.returncode == 0 and "nothing to do" in refused.stdout, refused
        assert MARK in machines.state(), "clean took the interface from a live run"
        run.kill()
        run.wait()
        shaped = machines.state()
        assert MARK in shaped
        told = clean(path, "--dry-run")
        assert told.stdout.count("would remove eth1") == 4 and machines.state() == shaped, told
        done = clean(path)
        assert done.returncode == 0 and done.stdout.count("removed eth1") == 4, done
        restored(path, before)
        assert clean(path).stdout == "nothing to do\n"


@inside
def test_the_next_run_restores_first_and_then_borrows() -> None:
    with machine() as (path, before):
        run = machines.run(path)
        kill(machines.guard())
        run.kill()
        run.wait()
        following = machines.run(path)
        following.stdin.close()
        assert "left by a dead run, removed first: eth1: qdisc htb 4d4e:" in following.stderr.read()
        following.wait(20)
        restored(path, before)


@inside
def test_a_second_run_is_refused_while_the_first_lives() -> None:
    with machine() as (path, before):
        run = machines.run(path)
        with pytest.raises(ledger.InUse, match=rf"eth1 is shaped by test \(pid {run.pid}\)"):
            borrow(path)
        assert MARK in machines.state()
        run.stdin.close()
        run.wait(20)
        restored(path, before)


@inside
def test_the_watchdog_restores_when_the_time_is_up_and_spares_the_next_run() -> None:
    with machine() as (path, before):
        run = machines.run(path, limit_s=2.0)
        restored(path, before)
        assert run.poll() is None
        following = machines.run(path)
        run.kill()
        run.wait()
        until(lambda: len(machines.guards()) == 1, "the first watchdog ends", 20)
        assert MARK in machines.state() and path.exists()
        following.stdin.close()
        following.wait(20)
        restored(path, before)


@inside
def test_after_a_reboot_the_ledger_is_only_removed() -> None:
    with machine() as (path, before):
        dead(path)
        shaped = machines.state()
        edit(path, boot_id="another")
        assert clean(path).stdout == "removed eth1: ledger of test\n"
        assert not path.exists() and machines.state() == shaped


@inside
def test_restoring_twice_does_nothing_more() -> None:
    with machine() as (path, before):
        dead(path)
        text = path.read_text()
        assert len(ledger.settle(path)) == 4
        assert machines.state() == before
        path.write_text(text)
        assert ledger.settle(path) == ["eth1: ledger of test"]
        restored(path, before)


@inside
def test_what_somebody_put_there_since_stays() -> None:
    with machine() as (path, _):
        dead(path)
        theirs = ("root", "handle", "8001:", "tbf", "rate", "1gbit", "burst", "64k", "limit", "1m")
        machines.tc("qdisc", "del", "dev", INTERFACE, "root")
        machines.tc("qdisc", "add", "dev", INTERFACE, *theirs)
        done = clean(path)
        assert "qdisc ingress" in done.stdout and "now are" in done.stdout, done
        assert "8001:" in machines.state() and MARK not in machines.state()


@inside
def test_a_ledger_that_is_not_whole_is_told_and_nothing_is_touched() -> None:
    with machine() as (path, _):
        dead(path)
        shaped, whole = machines.state(), path.read_text()
        for text in (
            "",
            whole[: len(whole) // 2],
            "[1]",
            "{}",
            whole.replace(f'"{INTERFACE}"', "7"),
        ):
            path.write_text(text)
            done = clean(path)
            assert done.returncode == 1 and "cannot be read" in done.stdout, (text, done)
            with pytest.raises(links.NetworkError, match="cannot be read .* nothing was touched"):
                borrow(path)
            assert path.read_text() == text and machines.state() == shaped
        path.write_text(whole)
        assert clean(path).returncode == 0


@inside
def test_a_folder_that_cannot_be_written_is_refused_before_any_change() -> None:
    for options in ("ro", "size=4096"):
        with machine() as (path, before):
            mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(path.parent)]
            subprocess.run(mount, check=True)
            if options != "ro":
                (path.parent / "full").write_bytes(bytes(4096))
            try:
                with pytest.raises(links.NetworkError, match="write ledger .*; no interface was"):
                    borrow(path)
                assert machines.state() == before
                assert not list(path.parent.glob("*eth1*"))
            finally:
                subprocess.run(["umount", str(path.parent)], check=True)


@inside
def test_a_failure_between_restores_what_was_added() -> None:
    with machine() as (path, before):
        with pytest.raises(ValueError, match="link rate must be in"):
            borrow(path, up_mbit=-1.0)
        restored(path, before)


def borrow(path: Path, up_mbit: float = 50.0) -> None:
    loan = Loan(path.parent, "test", "nobody", 60.0)
    with IPRoute() as ip:
        with lease(ip, INTERFACE, [address(1)], CONTROL_PORT, loan) as (found, ifb):
            machines.shape(ip, found, ifb, up_mbit, 50.0)


def dead(path: Path) -> None:
    """Leave what a run and its watchdog leave when both are killed."""
    run = machines.run(path)
    kill(machines.guard())
    run.kill()
    run.wait()


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
