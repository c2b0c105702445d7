"""The pages of a report, opened from disk in a browser without a network."""

import pytest

FILES = ("index.html", "by_hand.html", "trunk.html")
SIZES = """[...document.images].map(image => [image.alt, image.naturalWidth, image.naturalHeight,
    image.getBoundingClientRect().width])"""
COLUMN = (
    """(table, at) => [...table.tBodies[0].rows].map(row => row.cells[at].firstChild?.data ?? "")"""
)


def opened(page, pages, name: str):
    page.goto((pages / name).as_uri(), wait_until="load")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("name", FILES)
def test_a_page_is_as_wide_as_its_window(page, pages, name, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    opened(page, pages, name)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.evaluate("document.querySelector('body').getBoundingClientRect().width")
    assert 0.85 * min(width, 1344) <= wide <= width
    ink, paper = page.evaluate(
        "['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name])"
    )
    first, second = (int(each.split("(")[1].split(",")[0]) for each in (ink, paper))
    assert (first < second) == (scheme == "light") and abs(first - second) > 150


@pytest.mark.parametrize("name", FILES[1:])
def test_every_figure_is_drawn_and_described(page, pages, name):
    opened(page, pages, name)
    figures = page.evaluate(SIZES)
    assert len(figures) > 8
    for said, width, height, shown in figures:
        assert said and width > 100 and height > 50 and shown > 100, said


def test_the_index_leads_to_every_page_and_back(page, pages):
    opened(page, pages, "index.html")
    assert page.locator("main a").count() == 2
    page.get_by_role("link", name="trunk").click()
    assert page.locator("h1").inner_text() == "trunk"
    page.get_by_role("link", name="all experiments").click()
    assert page.locator("h1").inner_text() == "Experiments"


def test_every_link_of_a_page_has_its_section(page, pages):
    opened(page, pages, "by_hand.html")
    targets = page.eval_on_selector_all("nav a", "links => links.map(each => each.hash)")
    assert {"#methods", "#proof", "#environment", "#commands", "#left-out"} <= set(targets)
    for target in targets:
        assert page.locator(target).count() == 1


@pytest.mark.parametrize("how", ["click", "Enter", "Space"])
def test_a_header_sorts_by_mouse_and_by_keys(page, pages, how):
    opened(page, pages, "by_hand.html")
    table = page.locator("#methods table", has_text="topk_0.1").first
    header = table.locator("th[scope=col]", has_text="time (s)").first

    def press() -> list[str]:
        button = header.locator("button")
        button.click() if how == "click" else button.press(how)
        return table.evaluate(COLUMN, 3)

    assert header.get_attribute("aria-sort") == "none"
    assert press() == ["0.5", "5", "10"]
    assert header.get_attribute("aria-sort") == "ascending"
    assert press() == ["10", "5", "0.5"]
    assert header.get_attribute("aria-sort") == "descending"
    other = table.locator("th[scope=col] button").first
    other.press("Enter")
    assert header.get_attribute("aria-sort") == "none"
    assert table.evaluate(COLUMN, 0) == ["allreduce", "topk_0.01", "topk_0.1"]


def test_what_is_empty_stays_last_either_way(page, pages):
    opened(page, pages, "by_hand.html")
    table = page.locator("#proof table, #left-out table").last
    page.evaluate("""() => {
        const row = document.querySelector('#left-out tbody tr').cloneNode(true);
        row.cells[1].dataset.order = ''; row.cells[1].textContent = '';
        document.querySelector('#left-out tbody').prepend(row);
    }""")
    for _ in range(2):
        table.locator("th[scope=col] button").nth(1).click()
        assert table.evaluate(COLUMN, 1) == ["5", ""]


def test_paper_shows_what_is_folded(page, pages):
    opened(page, pages, "trunk.html")
    assert page.locator("details:not([open])").count() == 1
    assert page.pdf().startswith(b"%PDF")
    assert page.locator("details:not([open])").count() == 0
