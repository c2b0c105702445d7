"""Locks are files: told by name, gone with their processes, and no way to write elsewhere."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from harness import locks
from harness.config.settings import BadSetting
from harness.records import mounts
from harness.runner import run
from tests.launching import until
from tests.test_settings import settings

FORK = multiprocessing.get_context("fork")


def holds(lock: Path, what: str, taken: Event) -> None:
    with locks._held(lock, what):
        taken.set()
        signal.pause()


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A lock that another process holds, which is killed at the end."""
    taken = FORK.Event()
    other = FORK.Process(target=holds, args=(tmp_path / "lock", "in a\nlaw", taken))
    other.start()
    try:
        assert taken.wait(20)
        yield tmp_path / "lock"
    finally:
        other.kill()
        other.join()


def test_who_has_it_says_so_and_has_it_no_longer_when_killed(held: Path) -> None:
    said = locks.holder(held)
    assert said and said.startswith("process ") and " in a?law, by " in said
    assert locks._taken(held) is None
    [child] = FORK.active_children() or multiprocessing.active_children()
    child.kill()
    until(lambda: locks.holder(held) is None, "the lock is free")
    lock = locks._taken(held)
    assert lock is not None
    os.close(lock)


def test_another_user_may_say_what_he_likes_in_it_and_it_is_one_short_line(held: Path) -> None:
    held.write_bytes(b"\x1b[2Jevil\n" * 1000)
    said = locks.holder(held)
    assert said and len(said) <= locks.MOST_SAID_BYTES and said.isprintable()


def test_a_file_system_that_ignores_locks_is_refused(tmp_path, monkeypatch):
    """As some network file systems do, that say yes to whoever asks."""
    monkeypatch.setattr(locks.fcntl, "flock", lambda file, how: None)
    with pytest.raises(BadSetting, match="can be locked twice: its file system must have locks"):
        with locks.directory_to_ourselves(tmp_path / "results" / "adhoc" / "run"):
            pass


MOUNTS = r"""
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
31 22 0:40 / /home rw - nfs4 server:/home rw,vers=4.2,hard,local_lock=none
32 22 0:41 / /data rw - nfs server:/data rw,vers=3,nolock,local_lock=all
33 22 0:42 / /scratch rw - lustre mds@tcp:/scratch rw,flock
34 22 0:43 / /fast rw - lustre mds@tcp:/fast rw,localflock
35 22 0:44 / /my\040share rw - cifs //server/share rw,nobrl
36 22 0:45 / /away rw - fuse.sshfs me@there: rw,user_id=0
37 32 8:2 / /data/disk rw - xfs /dev/sdb1 rw
torn line
"""


@pytest.mark.parametrize(("folder", "why"), [
    ("/results", ""),
    ("/home/me/results", ""),
    ("/data/results", "nfs with local_lock=all"),
    ("/data/disk/results", ""),
    ("/database", ""),
    ("/scratch/results", ""),
    ("/fast/results", "lustre with localflock"),
    ("/my share/results", "cifs with nobrl"),
    ("/away", "fuse.sshfs with rw"),
])  # fmt: skip
def test_a_mount_says_if_its_locks_are_of_one_machine(folder: str, why: str) -> None:
    found = mounts.mounts(MOUNTS.splitlines())
    assert mounts.own_locks_of(found, Path(folder)) == why


def test_who_makes_runs_where_locks_are_of_one_machine_is_warned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mountinfo").write_text(f"1 1 0:1 / {tmp_path} rw - nfs s:/ rw,nolock\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
    for name in ("one", "other"):
        with locks.directory_to_ourselves(tmp_path / "results" / "adhoc" / name):
            pass
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "nfs with nolock: no other machine sees its locks" in said


def link(lock: Path) -> None:
    (lock.parent / "secret").write_text("kept")
    lock.symlink_to(lock.parent / "secret")


def pipe(lock: Path) -> None:
    os.mkfifo(lock)


@pytest.mark.parametrize("plant", [link, pipe, Path.mkdir])
def test_what_is_no_file_is_no_lock(plant: Callable[[Path], None], tmp_path: Path) -> None:
    plant(tmp_path / "lock")
    with pytest.raises(BadSetting, match=f"^{tmp_path}/lock, by which runs take turns"):
        with locks._held(tmp_path / "lock", "in a law"):
            pass
    assert not (tmp_path / "secret").exists() or (tmp_path / "secret").read_text() == "kept"


def test_all_users_share_the_machine_s_lock(tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(locks, "PLACES", (tmp_path / "private", tmp_path / "shared"))
    monkeypatch.setattr(locks.stat, "S_IWOTH", 0o001)  # a folder of tests is nobody else's
    old = os.umask(0o077)
    try:
        with locks.machine_to_ourselves("in a law"):
            assert locks.machine_lock().stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(old)
    assert locks.machine_lock().parent == tmp_path / "shared"


def performed(wanted: object, results: object) -> None:
    outcome = run.perform(wanted)  # type: ignore[arg-type]
    results.put((outcome.state, outcome.skipped))  # type: ignore[attr-defined]


def test_two_equal_commands_in_virtual_time_make_one_run(tmp_path: Path) -> None:
    """Four at once: one does it, the others wait for it and skip."""
    virtual = ("network=simulated", "model=mlp", "workers=2", "steps=2")
    wanted = settings(*virtual, f"results={tmp_path}")
    results = FORK.Queue()
    four = [FORK.Process(target=performed, args=(wanted, results)) for _ in range(4)]
    for each in four:
        each.start()
    found = sorted(results.get(timeout=120) for _ in four)
    for each in four:
        each.join()
    assert found == [("succeeded", False)] + [("succeeded", True)] * 3
    [run_dir] = (tmp_path / "adhoc").iterdir()
    assert len((run_dir / "steps.csv").read_text().splitlines()) == 1 + 2 * 2
