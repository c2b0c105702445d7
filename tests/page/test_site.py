"""The docs as a site: built strictly, every link and anchor there, opened without a network."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from harness.cli import reference
from harness.config.search_path import choices, groups
from tests.launching import afresh

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("http", "https", "mailto")
MADE_BY = re.compile(r"!\[[^\]]+\]\((\S+)\)\n(?:\n(?!    ).+(?:\n.+)*\n)*\n    (.+)\n")


class Links(HTMLParser):
    """What a page has and what it asks for: ids, and addresses of links, images and scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.asked: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[key] for key in ("id", "name") if found.get(key)}
        of_tag = {"a": "href", "link": "href", "img": "src", "script": "src"}
        if address := found.get(of_tag.get(tag, "")):
            self.asked.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; a warning of the builder fails."""
    made = tmp_path_factory.mktemp("site")
    words = ("-q", "-W", "--keep-going", "-b", "html", "-c", "docs", "-d", made / "doctrees")
    done = afresh([sys.executable, "-m", "sphinx", *map(str, words), ".", str(made / "html")])
    assert done.returncode == 0, done.stdout + done.stderr
    return made / "html"


@pytest.fixture(scope="module")
def links(site):
    return {path: Links(path) for path in sorted(site.rglob("*.html"))}


def test_every_link_has_its_page_and_its_anchor(site, links):
    assert len(links) > 30
    wrong, seen = [], 0
    for path, page in links.items():
        for address in page.asked:
            url = urlsplit(address)
            if url.scheme in OUTSIDE:
                continue
            seen += 1
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.is_file():
                wrong.append(f"{path.relative_to(site)}: {address}")
            elif (
                url.fragment and target in links and unquote(url.fragment) not in links[target].ids
            ):
                wrong.append(f"{path.relative_to(site)}: {address} has no such anchor")
    assert not wrong, "\n".join(wrong)
    assert seen > 1000


def test_no_option_of_a_directive_is_printed(links):
    options = re.compile(r">\s*(:[a-z]+(?:-[a-z]+)*:)\s*[<\n]")
    shown = {str(path): found for path in links if (found := options.findall(path.read_text()))}
    assert shown == {}


def test_nothing_of_a_page_comes_from_elsewhere(links):
    """Links may lead away; what a page needs is in the folder."""
    text = "\n".join(path.read_text() for path in links)
    needed = re.findall(r"<(?:link|script|img)\b[^>]*(?:href|src)=\"(?:https?:)?//[^\"]+", text)
    assert needed == []


@pytest.mark.parametrize("width", [360, 1400])
def test_pages_open_from_disk_without_a_network(page, site, width):
    page.set_viewport_size({"width": width, "height": 900})
    for name in ("index", "gallery", "architecture", "tutorial_link", "reference/compressors"):
        page.goto((site / "docs" / f"{name}.html").as_uri(), wait_until="load")
        assert page.locator("h1").count() == 1
        images = page.evaluate("[...document.images].map(each => each.naturalWidth)")
        assert all(images) and (images or name not in ("index", "gallery", "architecture"))
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_folder_leads_to_the_first_page_and_search_works(page, site):
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/docs/index.html")
    page.get_by_placeholder("Search").fill("DA2")
    page.keyboard.press("Enter")
    first = page.locator("#search-results li a").first
    first.click()
    page.wait_for_url(lambda url: "search.html" not in url)  # and until it is loaded
    assert "DA2" in page.locator("article").inner_text()


def test_the_reference_has_every_choice_and_every_public_class(site):
    shown = {each.stem: Links(each).ids for each in (site / "docs/reference").glob("*.html")}
    assert set(shown) == {*reference.PAGES, "settings"}
    for group in groups():
        text = (ROOT / "docs/reference/settings.md").read_text()
        assert all(f"| `{name}` |" in text for name in choices(group)), group
    for part in ("compressors", "controllers", "profiles"):
        written = "\n".join(path.read_text() for path in (ROOT / part).rglob("*.py"))
        classes = re.findall(r"^class ([A-Z]\w*)", written, re.MULTILINE)
        assert len(classes) > 15
        there = {name.rpartition(".")[2] for name in shown[part]}
        assert set(classes) <= there


def test_a_figure_of_the_gallery_says_the_command_that_makes_it():
    text = (ROOT / "docs/gallery.md").read_text()
    found = MADE_BY.findall(text)
    assert len(found) == text.count("![") >= 6
    for image, command in found:
        assert (ROOT / "docs" / image).is_file()
        if named := re.search(r"--only (\S+)", command):
            assert named[1] in choices("experiment") and Path(image).name.startswith(named[1])
