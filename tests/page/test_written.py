"""What is written in the pages of a report."""

import base64
import json
import re

import pandas as pd
import pytest

from harness.records.run_directory import Evaluation
from harness.reporting.analysis import load
from harness.reporting.page import experiment, html
from harness.reporting.report import compare, report
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
    assert ">all-reduce<" in section and ">0<" in section
    assert 'id="regret"' not in (pages / "trunk.html").read_text()


def test_an_oracle_is_neither_ranked_nor_drawn_in_what_it_is_no_oracle_of(pages):
    text = (pages / "by_hand.html").read_text()
    assert "oracle knows the profile, and is no choice; it takes 40 s (" in text
    [section] = re.findall(r'<section id="quality-over-time">.*?</section>', text, re.DOTALL)
    assert "all-reduce" in section and "oracle" not in whole(section)
    assert "DC2" in section  # its study says so
    [told] = re.findall(r'<section id="regret">.*?</table', text, re.DOTALL)
    assert "Of that it is the oracle" in " ".join(told.split())
    assert "progress over the oracle" in told and ">oracle<" in told


def test_settings_are_told_apart_and_a_table_can_be_kept(pages):
    text = (pages / "by_hand.html").read_text()
    assert "<h3>workers 2</h3>" in text and "<h3>workers 4</h3>" in text
    kept = re.findall(r'href="data:text/csv;base64,([^"]+)" download="(by_hand-\w+)\.csv"', text)
    assert len(kept) == 2
    for held, name in kept:
        assert base64.b64decode(held) == (pages / name / "comparison.csv").read_bytes()
    assert pd.read_csv(pages / kept[0][1] / "comparison.csv").method[0] == "topk_0.01"


def test_the_decision_comes_first_and_quality_over_time_further_down(pages):
    text = (pages / "by_hand.html").read_text()
    first = text.index("top-k 1 % is first: it reaches accuracy 0.8 after 0.5 s")
    figure = text.index('alt="Time to the target')
    assert text.index("<h1>") < first < figure < text.index('id="methods"')
    assert figure < text.index('id="quality-over-time"') < text.index('id="regret"')
    assert text.count('alt="Time to the target') == 2  # one a setting, and nowhere else
    assert "<h3>workers 4</h3>" in text[:first] or "<h3>workers 4</h3>" in text[first:]
    index = (pages / "index.html").read_text()
    assert "top-k 1 % is first: it reaches accuracy 0.8" in index
    assert "runs are left out" in text[: text.index('id="methods"')]


def test_a_run_without_a_target_is_told_what_to_write(pages):
    assert "No run was evaluated" in (pages / "trunk.html").read_text()


def test_curves_are_data_in_which_no_name_runs(tmp_path):
    for at, (method, step_s) in enumerate({EVIL: 0.5, ABROAD: 1.0, "allreduce": 2.0}.items()):
        rows = [by_hand.step(number, time_s=step_s * (number + 1)) for number in range(10)]
        tested = [Evaluation(n, n * step_s, "accuracy", n / 10) for n in (5, 10)]
        by_hand.run(tmp_path / "e" / str(at), by_hand.config(method), rows, tested)
    told = experiment.quality_curves(compare(load.runs(tmp_path / "e")))
    assert told is not None and not set(str(told)) & set("<>&'")
    found = json.loads(str(told))
    assert [each["name"] for each in found["curves"]] == [EVIL, "…/weights.pt", "allreduce"]
    assert found["metric"] == "accuracy" and found["target"] == 0.8
    for each, step_s in zip(found["curves"], (0.5, 1.0, 2.0), strict=True):
        times = [[time_s, step] for time_s, step, *_ in each["points"]]
        assert times == [[5 * step_s, 5], [10 * step_s, 10]]
        assert [point[2] for point in each["points"]] == [0.5, 1.0]
    black = [each["name"] for each in found["curves"] if each["look"]["stroke"] == "black"]
    assert black == ["allreduce"]


def test_what_is_not_known_is_null_and_a_run_never_evaluated_has_no_curve(tmp_path):
    rows = [by_hand.step(number) for number in range(5)]
    tested = [Evaluation(2, 1.0, "accuracy", float("nan")), Evaluation(5, 2.0, "accuracy", 0.5)]
    by_hand.run(tmp_path / "e" / "a", by_hand.config("allreduce"), rows, tested)
    told = experiment.quality_curves(compare(load.runs(tmp_path / "e")))
    assert json.loads(str(told))["curves"][0]["points"] == [[2.0, 5, 0.5, None, None]]
    by_hand.run(tmp_path / "f" / "a", by_hand.config("allreduce"), rows)
    assert experiment.quality_curves(compare(load.runs(tmp_path / "f"))) is None


def test_of_one_experiment_the_index_is_its_page(tmp_path, capsys):
    out = report(by_hand.sweep(tmp_path / "by_hand", {"topk": 0.5}, seeds=1))
    assert str(out / "index.html") in capsys.readouterr().out.splitlines()
    assert [path.name for path in out.glob("*.html")] == ["index.html"]
    text = (out / "index.html").read_text()
    assert "<h1>by_hand</h1>" in text and "all experiments" not in text
    assert len(text) < 3_000_000
