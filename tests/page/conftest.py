"""A report of two experiments made by hand, and a browser that may fetch nothing."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from harness.records.run_directory import Evaluation, read_json, write_json
from harness.reporting.report import report
from tests import records_by_hand as by_hand

NAMES = ("chromium", "chromium-browser", "google-chrome")
EVIL = "topk<script>alert(1)</script>"  # a name that would run if it were not escaped
ABROAD = "/home/someone/secret/weights.pt"


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results root: a sweep of two settings with a run that failed, and a dumbbell's runs."""
    root = tmp_path_factory.mktemp("page") / "results"
    sweep = by_hand.sweep(root / "by_hand", {"allreduce": 1.0, "topk_0.1": 0.5, EVIL[:4]: 0.05})
    for name, method in (("four", "oracle"), ("five", "allreduce")):
        rows = [by_hand.step(n, time_s=(n + 1) * len(name)) for n in range(10)]
        tested = [Evaluation(10, 10.0 * len(name), "accuracy", 0.9)]
        by_hand.run(sweep / name, by_hand.config(method, workers=4), rows, tested)
    error = f"rank 1 could not read {ABROAD}"
    failed = {"state": "failed", "error": error}
    by_hand.run(sweep / "lost", by_hand.config(EVIL, 5), status=failed)
    made = {"git": {"commit": "abc123", "dirty": True}, "kernel": "6.1", "cores": 2, "seed": 0}
    for number, seed in enumerate((7, 8)):
        run = by_hand.contended(root / "trunk" / f"r{number}")
        text = (run / "config.yaml").read_text()
        text = text.replace("by_hand", "trunk").replace("seed: 0", f"seed: {seed}")
        (run / "config.yaml").write_text(text)
        environment = read_json(run / "environment.json") | made | {"seed": seed}
        write_json(run / "environment.json", environment)
        by_hand.seal(run)
    return root


@pytest.fixture(scope="package")
def pages(folder: Path) -> Path:
    """Where the report of `folder` is."""
    return report(folder)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None and "CI" not in os.environ:
        pytest.skip("no chromium; `sh scripts/system-packages test` installs it")
    assert program, f"one of {', '.join(NAMES)} must be installed"
    with sync_playwright() as playwright:
        # root has no sandbox of its own; the pages are ours
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails its test when it fetches, complains or raises."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    wrong: list[str] = []

    def only_files(route):
        if route.request.url.startswith("file://"):
            return route.continue_()
        wrong.append(f"asked for {route.request.url[:80]}")
        return route.abort()

    context.route(lambda url: not url.startswith("data:"), only_files)
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert not wrong
