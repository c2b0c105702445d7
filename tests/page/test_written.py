"""What is written in the pages of a report."""

import base64
import re

import pandas as pd
import pytest

from harness.report import report
from harness.reporting.page import html
from tests import records_by_hand as by_hand
from tests.page.conftest import ABROAD, EVIL


def whole(text: str) -> str:
    """A page with what its data: addresses hold."""
    held = [base64.b64decode(each) for each in re.findall(r"data:image/svg[^,]+,([^\"]+)", text)]
    assert held
    return text + "".join(each.decode() for each in held)


@pytest.mark.parametrize("name", ["by_hand", "trunk"])
def test_nothing_is_fetched(pages, name):
    text = whole((pages / f"{name}.html").read_text())
    spaces = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
    dtd = "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd"  # named by a doctype, never read
    for known in (*spaces, dtd):
        text = text.replace(known, "")
    assert not re.findall(r"(?:https?:)?//[\w.-]+\.\w+|@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_names_and_errors_are_text_and_paths_are_told_without_folders(pages, folder):
    text = (pages / "by_hand.html").read_text()
    assert EVIL not in text and "&lt;script&gt;alert(1)" in text
    assert ABROAD not in text and "rank 1 could not read …/weights.pt" in text
    for page in pages.glob("*.html"):
        assert str(folder.parent) not in page.read_text()


def test_paths_lose_their_folders_and_nothing_else_does():
    assert html.without_folders("no /a/b.c/d.pt in /e/f") == "no …/d.pt in …/f"
    same = "12 Mbit/s, 5/6, a/b/c, ~/x, //"
    assert html.without_folders(same) == same and html.without_folders(3) == 3


def test_the_page_has_what_its_runs_say(pages):
    text = (pages / "trunk.html").read_text()
    for said in ("abc123, with changes that were not committed", "7 (1 of 2 runs)", "real packets",
                 "2 real seconds for an emulated one", "1 method, 2 seeds: 2 of 2 runs count",
                 "proof of every run"):  # fmt: skip
        assert said in text, said
    assert text.count(">1.1<") >= 3  # bytes over sent, of each run and the worst


def test_regret_is_told_where_the_oracle_ran(pages):
    text = (pages / "by_hand.html").read_text()
    [section] = re.findall(r'<section id="regret">.*?</section>', text, re.DOTALL)
    assert ">allreduce<" in section and ">0<" in section
    assert 'id="regret"' not in (pages / "trunk.html").read_text()


def test_settings_are_told_apart_and_a_table_can_be_kept(pages):
    text = (pages / "by_hand.html").read_text()
    assert "<h3>workers 2</h3>" in text and "<h3>workers 4</h3>" in text
    kept = re.findall(r'href="data:text/csv;base64,([^"]+)" download="(by_hand-\w+)\.csv"', text)
    assert len(kept) == 2
    for held, name in kept:
        assert base64.b64decode(held) == (pages / name / "comparison.csv").read_bytes()
    assert pd.read_csv(pages / kept[0][1] / "comparison.csv").method[0] == "allreduce"


def test_of_one_experiment_the_index_is_its_page(tmp_path, capsys):
    out = report(by_hand.sweep(tmp_path / "by_hand", {"topk": 0.5}, seeds=1))
    assert str(out / "index.html") in capsys.readouterr().out.splitlines()
    assert [path.name for path in out.glob("*.html")] == ["index.html"]
    text = (out / "index.html").read_text()
    assert "<h1>by_hand</h1>" in text and "all experiments" not in text
    assert len(text) < 3_000_000
