"""Names of others reach a terminal, a page or a spreadsheet as text."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.config.scales import composed
from harness.config.typed import BadSetting
from harness.records import printable
from harness.records.outputs import CannotWrite
from harness.reporting import report
from harness.reporting.analysis import load
from harness.reporting.page import commands
from tests import records_by_hand as by_hand
from tests.door import door

TITLE, LINK, UP = "\x1b]0;owned\x07", "\x1b]8;;http://x\x1b\\", "\x9b5A\r\x08"
REVERSED, HALF = "\u202egpj.exe", "\udcff"


@pytest.mark.parametrize("text", [TITLE, LINK, UP, REVERSED, HALF, "a\tb", "\x7f", "\0"])
def test_what_controls_a_terminal_is_replaced(text: str) -> None:
    shown = printable.line(f"topk{text}0.1\n")
    assert shown.isprintable() and shown.startswith("topk") and len(shown) == 8 + len(text)
    assert printable.lines(f"{text}\n") == shown[4 : 4 + len(text)] + "\n"
    for kind in (BadSetting, CannotWrite, load.NoRuns):
        assert str(kind(text)).isprintable()


@pytest.mark.parametrize("text", ["topk_0.1", "± é 中 — “x” 5 s", "a|b$c`d"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert printable.line(text) == text and printable.values({text: [text, 1]}) == {text: [text, 1]}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Runs whose every name is of somebody who wants the terminal."""
    folder = by_hand.sweep(tmp_path / "by_hand", {"allreduce": 1.0}, seeds=1)
    names = {"name": f"={TITLE}topk"}
    evil = by_hand.config("x", model=names, profile=names) | {"method": names}
    ends: dict[str, dict[str, Any]] = {
        f"a{TITLE}": {"status": {"error": LINK}},
        "b": {"status": {"state": "failed", "error": f"[/red]{UP}\nsecond"}},
        "c": {"status": {"state": "invalid"}, "summary": {"valid": False, "reasons": [TITLE]}},
    }
    for name, ended in ends.items():
        by_hand.run(folder / name, evil, [by_hand.step(0)], **ended)
    return folder


def test_no_command_sends_a_foreign_name_to_the_terminal(foreign, monkeypatch, capsys):
    assert door("report", foreign) == 0 and door("study", "claims", foreign) == 0
    assert door("report", "--status", foreign) == 1
    (foreign / f"a{TITLE}" / "tmp").mkdir()
    assert door("doctor", "--clean", "--results", foreign.parent, "--ledger", foreign) == 0
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert text.replace("\n", "").isprintable()
    assert "?]0;owned?topk" in said.out and "[/red]" in said.out
    for page in (foreign / "report").rglob("*.html"):
        assert "\x1b" not in page.read_text() and "\x07" not in page.read_text()


def test_a_foreign_name_is_no_formula(foreign):
    tables = [file.read_text() for file in report.report(foreign).rglob("comparison.csv")]
    assert any("\n'=?]0;owned?topk," in table for table in tables)


def test_a_command_that_somebody_typed_is_not_offered_ready_to_copy(tmp_path):
    """Nor one that calls what it names; a shell that is given either does nothing."""
    evil = f"touch {shlex.quote(str(tmp_path / 'evil'))}"
    typed = by_hand.config("x", typed=f"python -m x; {evil}\n{evil}", around={"of": 1})
    found, _ = composed(["network=simulated"])
    called = found.config | {"typed": f"python -m harness model._target_=os.system 'x={evil}'"}
    paths = [str(by_hand.run(tmp_path / "r" / name, config, [by_hand.step(0)]))
             for name, config in (("typed", typed), ("called", called))]  # fmt: skip
    for said in commands.of_runs(paths).of_run.values():
        assert said.startswith(commands.MARK) and "\n" not in said
        for shell_line in (said, said.removeprefix("# ")):  # a shell may have no comments
            subprocess.run(["sh", "-c", shell_line], stderr=subprocess.DEVNULL, cwd=tmp_path)
    assert len(commands.of_runs(paths).of_run) == 2 and not (tmp_path / "evil").exists()
    assert commands.of_runs(paths).elsewhere == 2


def test_runs_of_elsewhere_are_counted_on_their_page(foreign):
    pages = [page.read_text() for page in report.report(foreign).rglob("*.html")]
    assert any("of these runs: made on another machine or by" in page for page in pages)
