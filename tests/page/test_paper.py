"""The page of a paper's experiments, opened from disk."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from harness.reproduce import page as paper_page
from harness.reproduce.paper import Paper, Sweep
from tests import records_by_hand as by_hand

EXPERIMENTS = ["by_hand", "trunk", "twins"]
PAPER = Paper("own", "A paper & its runs", "dc2", EXPERIMENTS, [Sweep(["seed=0"])])
TWINS = {
    "real": {"_target_": "harness.emulation.star.Star"},
    "virtual": {"_target_": "harness.virtual.network.Simulated"},
}


@pytest.fixture(scope="module")
def written(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index of a paper whose runs are those of `folder`, and two that are twins."""
    results = tmp_path_factory.mktemp("paper") / "results"
    shutil.copytree(folder, results, ignore=shutil.ignore_patterns("report"))
    rows = [by_hand.step(n, time_s=n + 1.0) for n in range(10)]
    for name, network in TWINS.items():
        config = by_hand.config("allreduce", experiment="twins", network=network)
        by_hand.run(results / "twins" / name, config, rows)
    return paper_page.write(PAPER, results)


@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_of_a_paper_is_as_wide_as_its_window(page, written, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(written.as_uri(), wait_until="load")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("h1").inner_text() == "A paper & its runs"


def test_every_experiment_that_has_a_report_is_one_click_away(page, written):
    page.goto(written.as_uri(), wait_until="load")
    for name in PAPER.experiments:
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("h1")).to_have_text(name)
        page.go_back()


def test_the_page_has_all_tables_and_each_section_its_link(page, written):
    page.goto(written.as_uri(), wait_until="load")
    targets = page.eval_on_selector_all("nav a", "links => links.map(each => each.hash)")
    assert {"#claims", "#experiments", "#left-out", "#tables"} <= set(targets)
    for target in targets:
        assert page.locator(target).count() == 1
    for link in page.locator("#tables a").all():
        assert (written.parent / str(link.get_attribute("href"))).stat().st_size


def test_where_no_claim_has_runs_each_says_which_are_missing(page, written):
    page.goto(written.as_uri(), wait_until="load")
    section = page.locator("#claims")
    rows = section.locator("tbody tr", has_text="dc2_fig3")
    assert rows.count() >= 1
    for row in rows.all():
        assert "not decidable here" in row.inner_text() and "no runs of" in row.inner_text()


def test_who_reaches_the_target_first_is_told_before_the_claims(page, written):
    page.goto(written.as_uri(), wait_until="load")
    section = page.locator("#decision")
    assert section.locator("tbody tr").count() == 2  # the others had nothing evaluated
    assert "topk_0.01 is first: it reaches accuracy 0.8 after 0.5 s" in section.inner_text()
    order = page.eval_on_selector_all("main > section", "all => all.map(each => each.id)")
    assert order[0] == "decision"


def test_twins_are_compared_with_a_figure(page, written):
    page.goto(written.as_uri(), wait_until="load")
    section = page.locator("#agreement")
    assert section.locator("img").evaluate("image => image.naturalWidth") > 100
    section.locator("summary").click()
    assert section.locator("details tbody tr").count() == 1
