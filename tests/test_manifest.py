"""A finished run's files are those that it wrote: what was changed since is told."""

from pathlib import Path

import pytest

from harness.records import manifest, status
from tests import records_by_hand as by_hand


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [by_hand.step(number) for number in range(80)]
    return by_hand.run(tmp_path / "run", by_hand.config("topk"), rows, environment={"cores": 2})


def damage(run: Path) -> str:
    return manifest.damage(run, status.read_json(run / "status.json") or {})


def test_files_as_they_were_written_have_no_damage(run: Path) -> None:
    assert damage(run) == ""


def test_a_run_that_is_judged_leaves_the_manifest_of_its_files(run: Path) -> None:
    for state in status.FINAL:
        status.begin(run)
        status.end(run, state)
        assert (damage(run) == "") == (state in status.JUDGED)


def test_rows_that_are_cut_are_counted(run: Path) -> None:
    rows = (run / "steps.csv").read_text().splitlines(keepends=True)
    (run / "steps.csv").write_text("".join(rows[:11]))
    assert damage(run) == "steps.csv is damaged: 11 lines, 81 when the run ended"


def test_rows_twice_are_counted(run: Path) -> None:
    text = (run / "steps.csv").read_text()
    (run / "steps.csv").write_text(text + text)
    assert damage(run) == "steps.csv is damaged: 162 lines, 81 when the run ended"


def test_one_digit_is_noticed(run: Path) -> None:
    text = (run / "steps.csv").read_text()
    (run / "steps.csv").write_text(text.replace("0.3", "0.2", 1))
    assert damage(run) == "steps.csv is damaged: it has changed since the run ended"


def test_a_file_that_is_gone_and_one_that_has_come_are_told(run: Path) -> None:
    (run / "timeline.csv").write_text("step\n")
    assert damage(run) == "timeline.csv is damaged: there was none when the run ended"
    (run / "summary.json").unlink()
    assert damage(run) == "summary.json is damaged: it is missing"


def test_names_in_a_manifest_reach_no_other_file(run: Path) -> None:
    """A manifest from elsewhere may name any path; only a run's own files are opened."""
    told = status.read_json(run / "status.json") or {}
    told["files"] |= {"../../etc/passwd": {"bytes": 1}, "logs": {}, "/dev/zero": {}}
    assert manifest.damage(run, told) == ""


@pytest.mark.parametrize("files", [None, [], "x", 3, {}, {"steps.csv": None}, {"steps.csv": 1}])
def test_a_manifest_that_is_none_is_damage(run: Path, files: object) -> None:
    assert manifest.damage(run, {"state": "succeeded", "files": files})
