"""Storage that fails: a full disk, a folder that cannot be written or is removed under way."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.aftermath import PLAIN, SETTLED, SOON_S, Scene, finished_run, status, traces
from tests.launching import command, completed, nsenter, until

pytestmark = pytest.mark.launch

# long enough for its rows to need more than the block that steps.csv has at the gate
SWEEP = (*PLAIN, "steps=12", "seed=0,1,2")
DISK = "3m"
USERS = {"root": [], "mapped": ["--user", "--map-root-user"]}
NO_ROOM = "No space left on device"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("before"), *SWEEP[:-1])


class Disk:
    """A small file system of its own at `place`, which only processes `inside` see there."""

    def __init__(self, holder: int, place: Path) -> None:
        self.holder = holder
        self.seen = Path(f"/proc/{holder}/root{place}")  # from here
        self._ballast = self.seen / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
            except OSError as full:
                assert NO_ROOM in str(full)

    def empty(self) -> None:
        self._ballast.unlink()


@contextmanager
def disk(place: Path, user: Sequence[str]) -> Iterator[Disk]:
    place.mkdir()
    mount = f'mount -t tmpfs -o size={DISK} tmpfs "$0" && echo mounted && read end'
    holder = subprocess.Popen(["unshare", *user, "--mount", "sh", "-c", mount, str(place)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert holder.stdout and holder.stdout.readline() == "mounted\n"
    try:
        yield Disk(holder.pid, place)
    finally:
        holder.communicate()


@pytest.mark.parametrize("user", USERS)
def test_a_disk_that_fills_up_fails_the_run_and_spares_the_others(user, finished, tmp_path):
    with Scene(tmp_path, None) as scene, disk(scene.results, USERS[user]) as small:
        scene.keep(finished, small.seen)
        running = scene.start(*SWEEP, inside=small.holder)
        run = scene.under_way(small.seen)
        seen = traces(running.pid)
        small.fill()
        scene.open()
        output, _ = running.communicate(timeout=4 * SOON_S)
        assert running.returncode == 1, output
        assert status(run)["state"] == "failed" and NO_ROOM in status(run)["error"]
        assert str(scene.results) in status(run)["error"]
        assert output.count(NO_ROOM) >= 2, output  # of this run, and of the one after it
        assert output.count("Traceback") <= 1, output  # of the worker that found out
        scene.check(seen)
        small.empty()
        again = scene.start(*SWEEP[:-1], "seed=0,1", inside=small.holder)
        output, _ = again.communicate(timeout=4 * SOON_S)
        assert "skipped" in output and status(run)["state"] in SETTLED, output


def refused(results: Path, before: Sequence[str] = (), inside: int | None = None) -> str:
    """The one line that the command says instead of starting anything there."""
    line = [*before, *command(*PLAIN, "steps=1", results=results)]
    done = completed(line, 2 * SOON_S, inside=inside)
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 1 and len(said.splitlines()) == 1, said
    assert said.startswith("harness: results must be a folder that can be written"), said
    assert str(results) in said
    return said


def test_a_full_or_read_only_disk_is_told_before_anything_starts(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with disk(results, []) as small:
        small.fill()
        assert NO_ROOM in refused(results, inside=small.holder)
        read_only = ["mount", "-o", "remount,ro", str(results)]
        subprocess.run([*nsenter(small.holder), *read_only], check=True)
        assert "Read-only file system" in refused(results, inside=small.holder)
        assert [path.name for path in small.seen.iterdir()] == ["ballast"]


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "exists" in refused(tmp_path / "file")
    assert "Not a directory" in refused(tmp_path / "file" / "results")


def test_a_folder_that_is_not_ours_to_write_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results").chmod(0o555)
    ordinary = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    assert "Permission denied" in refused(tmp_path / "results", ordinary)


def test_a_directory_removed_under_way_ends_its_run_and_stays_away(finished, tmp_path):
    with Scene(tmp_path, finished) as scene:
        running = scene.start(*SWEEP[:-1], "seed=0,1")
        run = scene.under_way()
        seen = traces(running.pid)
        shutil.rmtree(run)
        output, _ = running.communicate(timeout=SOON_S)
        assert running.returncode == 1 and "Traceback" not in output, output
        assert f"{run} was removed" in output or f"{run}/steps.csv was removed" in output, output
        scene.check(seen)
        assert not run.exists() and os.listdir(run.parent) == [scene.finished.name]
        scene.open()
        again = scene.start(*SWEEP[:-1], "seed=0,1")
        output, _ = again.communicate(timeout=4 * SOON_S)
        until(lambda: status(run).get("state") in SETTLED, output)
