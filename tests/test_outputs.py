"""What a command writes lands in its own folder, whatever links lie there."""

import os
import random
import shutil
from pathlib import Path

import pandas as pd
import pytest

from harness.cli import reference
from harness.records.outputs import CannotWrite, OutputFolder, csv_text
from harness.reporting import report
from tests import records_by_hand as by_hand
from tests.door import door


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs under two settings, so that its report has folders, and the report."""
    folder = by_hand.sweep(tmp_path_factory.mktemp("own") / "by_hand", {"topk_0.1": 0.5}, seeds=1)
    by_hand.run(folder / "slow", by_hand.config("topk_0.1", batch_size=20), [by_hand.step(0)])
    report.report(folder)
    return folder


class Elsewhere:
    """A file and a folder of the user's, which no command may change."""

    def __init__(self, place: Path) -> None:
        self.file, self.folder = place / ".bashrc", place / "home"
        self.folder.mkdir(parents=True)
        self.file.write_text("export MINE=1\n")
        (self.folder / "mine").write_text("mine\n")

    def is_untouched(self) -> bool:
        whole = self.file.read_text(), (self.folder / "mine").read_text()
        return whole == ("export MINE=1\n", "mine\n") and os.listdir(self.folder) == ["mine"]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: Path | str) -> int:
    return door("report", *arguments)


@pytest.mark.parametrize(
    "count", [3, pytest.param(50, marks=[pytest.mark.faults, pytest.mark.timeout(1800)])]
)
def test_a_report_writes_through_no_link(count, reported, tmp_path, monkeypatch, capsys):
    """Links to a file, to a folder, and to what is not there yet, in the place of any output."""
    outputs = sorted((reported / "report").rglob("*"))
    places = [reported / "report", *outputs]
    drawn = random.Random(count)
    for at in range(count):
        elsewhere = Elsewhere(tmp_path / f"user{at}")
        folder = tmp_path / f"foreign{at}"
        shutil.copytree(reported, folder, ignore=shutil.ignore_patterns("report"))
        place = folder / drawn.choice(places).relative_to(reported)
        absent = elsewhere.folder / "new"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(drawn.choice([elsewhere.file, elsewhere.folder, absent]))
        assert command(monkeypatch, folder) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"harness report: {place} is a link") and "--out FOLDER" in said
        assert said.count("\n") == 1 and elsewhere.is_untouched() and place.is_symlink()
        if at == 0:
            assert command(monkeypatch, folder, "--out", tmp_path / "out") == 0
            assert elsewhere.is_untouched() and (tmp_path / "out" / "index.html").is_file()


def test_a_folder_that_is_a_link_is_refused_by_name(reported, tmp_path, monkeypatch, capsys):
    (tmp_path / "linked").symlink_to(shutil.copytree(reported, tmp_path / "runs"))
    shutil.rmtree(tmp_path / "runs" / "report")
    assert command(monkeypatch, tmp_path / "linked") == 1
    assert f"{tmp_path / 'linked'} is a link: name" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "report").exists()


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_report_that_is_no_folder_is_refused_by_name(
    kind, reported, tmp_path, monkeypatch, capsys
):
    folder = shutil.copytree(reported, tmp_path / "foreign")
    shutil.rmtree(folder / "report")
    os.mkfifo(folder / "report") if kind == "pipe" else (folder / "report").write_text("")
    assert command(monkeypatch, folder) == 1
    assert f"{folder / 'report'} is not a folder" in capsys.readouterr().err


def test_previews_and_reference_pages_are_written_through_no_link(tmp_path, capsys):
    elsewhere = Elsewhere(tmp_path / "user")
    drawing, pages = tmp_path / "draw_static.png", tmp_path / "pages"
    drawing.symlink_to(elsewhere.file)
    assert door("draw=1", f"results={tmp_path}") == 1
    assert f"{drawing} is a link" in capsys.readouterr().err
    pages.mkdir()
    (pages / "settings.md").symlink_to(elsewhere.file)
    with pytest.raises(CannotWrite, match="settings.md is a link"):
        reference.write(pages)
    assert elsewhere.is_untouched()


def test_a_file_is_replaced_whole_and_its_other_names_are_not(tmp_path):
    """A hard link to a user's file is such a name."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    os.link(mine, tmp_path / "out.csv")
    out = OutputFolder(tmp_path)
    assert out.write("out.csv", "new").read_text() == "new" and mine.read_text() == "mine"
    with pytest.raises(ValueError, match="no name of a file"):
        out.write("../out.csv", "new")
    with pytest.raises(ValueError, match="no name of a file"):
        out / ".."
    assert sorted(os.listdir(tmp_path)) == ["mine", "out.csv"]


@pytest.mark.parametrize("text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_a_cell_that_begins_as_a_formula_is_written_as_text(text):
    table = pd.DataFrame({"method": [text, "topk"], "loss": [-1.5, 2.0], text: [1, 2]})
    head, first, second = csv_text(table).replace("\r", "").split("\n", 2)
    shown = text.replace("\r", "")
    assert f"'{shown}" in first and ",-1.5," in first and second.startswith("topk,2.0,")
    assert head.endswith(f"'{shown}") or head.endswith(f"'{shown}\"")


@pytest.mark.parametrize("text", ["-1", "+0.5", "-1e-3", "-inf", "topk", "a=b", ""])
def test_other_cells_stay_as_they_are(text):
    assert csv_text(pd.DataFrame({"value": [text]})).splitlines()[1].strip('"') == text
