"""A run that is written elsewhere arrives whole in its place, however it ended."""

from pathlib import Path

import pytest

from harness.config.scales import composed
from harness.config.settings import BadSetting
from harness.records import status
from harness.runner import previous_result, run, scratch
from tests.virtual.runs import SMALL


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's own disk, as a scheduler names it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("DISK", str(folder))
    monkeypatch.setenv(scratch.VARIABLE, "$DISK")
    return folder


def settings(results: Path) -> run.Settings:
    return composed(["network=simulated", *SMALL, f"results={results}"])[0]


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_readers_see_a_result_in_its_place_once_it_is_whole(tmp_path, disk, state):
    asked = settings(tmp_path / "results")

    def do(place: Path, lock: int | None) -> None:
        assert disk in place.parents and (place / "config.yaml").exists()
        assert not asked.run_dir().exists()
        (place / "told").write_text("all")
        status.end(place, state)

    outcome = run.done_once(asked, do, alone=False)
    assert (outcome.run_dir, outcome.state) == (asked.run_dir(), state)
    assert (asked.run_dir() / "told").read_text() == "all" and not list(disk.iterdir())
    assert previous_result.is_kept(asked.run_dir(), asked) == (state == "succeeded")
    left = [path for path in asked.run_dir().parent.iterdir() if path != asked.run_dir()]
    assert not left


def test_what_a_killed_run_left_there_is_no_part_of_the_next(tmp_path: Path, disk: Path) -> None:
    asked = settings(tmp_path / "results")
    left = scratch.working(asked.run_dir())
    left.mkdir(parents=True)
    (left / "torn").touch()
    run.done_once(asked, lambda place, lock: status.end(place, "succeeded"), alone=False)
    assert not (asked.run_dir() / "torn").exists()


@pytest.mark.parametrize("named", ["$UNSET_HERE", "relative", "/dev/null"])
def test_a_disk_that_is_no_folder_is_refused_before_anything_starts(tmp_path, monkeypatch, named):
    monkeypatch.setenv(scratch.VARIABLE, named)
    asked = settings(tmp_path / "results")
    with pytest.raises(BadSetting, match="GRADNET_SCRATCH must be a folder by its absolute path"):
        run.perform(asked)
    assert not asked.run_dir().parent.exists()
