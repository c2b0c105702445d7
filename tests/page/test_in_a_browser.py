"""The pages of a report, opened from disk in a browser without a network."""

import pytest
from playwright.sync_api import expect

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
    expect(page.locator("h1")).to_have_text("trunk")
    page.get_by_role("link", name="all experiments").click()
    expect(page.locator("h1")).to_have_text("Experiments")


def test_every_link_of_a_page_has_its_section(page, pages):
    opened(page, pages, "by_hand.html")
    targets = page.eval_on_selector_all("nav a", "links => links.map(each => each.hash)")
    assert {"#methods", "#proof", "#environment", "#commands", "#left-out"} <= set(targets)
    for target in targets:
        assert page.locator(target).count() == 1


def chart(page, pages):
    opened(page, pages, "by_hand.html")
    figure = page.locator("figure.curves:has-text('top-k 10 %')").first
    assert figure.is_visible() and figure.locator("polyline").count() == 3
    return figure


def drawn(figure) -> list[str]:
    return figure.locator("polyline").evaluate_all(
        "lines => lines.map(each => each.getAttribute('points'))"
    )


def to(page, figure, across: float, down: float) -> None:
    """Move the pointer to a place of the drawing, in shares of its width and height."""
    box = figure.locator(".plot svg").bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])


def test_a_name_hides_its_curve_and_shows_it_again(page, pages):
    figure = chart(page, pages)
    before, name = drawn(figure), figure.locator(".legend button", has_text="all-reduce")
    name.click()
    assert name.get_attribute("aria-pressed") == "false"
    assert len(drawn(figure)) == 2 and figure.locator("line.target").count() == 1
    name.press("Enter")
    assert name.get_attribute("aria-pressed") == "true" and drawn(figure) == before


def test_dragging_zooms_and_a_double_click_shows_all_again(page, pages):
    figure = chart(page, pages)
    before, reset = drawn(figure), figure.locator(".tools button", has_text="show all")
    assert reset.is_hidden()
    for again in (lambda: figure.locator(".plot svg").dblclick(), reset.click):
        to(page, figure, 0.3, 0.3)
        page.mouse.down()
        to(page, figure, 0.6, 0.7)
        assert figure.locator(".zoom").count() == 1
        page.mouse.up()
        assert reset.is_visible() and drawn(figure) != before
        again()
        assert reset.is_hidden() and drawn(figure) == before


def test_values_under_the_pointer_stand_beside_the_names(page, pages):
    figure = chart(page, pages)
    values = figure.locator(".legend output")
    assert values.all_inner_texts() == ["", "", ""]
    to(page, figure, 0.99, 0.5)  # the end of the slowest: the others are over
    assert values.all_inner_texts() == ["", "", "0.905"]
    assert figure.locator("circle.pointer").count() == 1
    page.mouse.move(0, 0)
    assert values.all_inner_texts() == ["", "", ""]


def test_curves_are_drawn_over_steps_too(page, pages):
    figure = chart(page, pages)
    before = drawn(figure)
    figure.locator(".tools button").first.click()
    ends = {points.split()[-1].split(",")[0] for points in drawn(figure)}
    assert len(ends) == 1 and drawn(figure) != before  # all made as many steps


def test_without_scripts_the_figures_are_there(browser, pages):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((pages / "by_hand.html").as_uri())
    assert page.locator("figure.curves").first.is_hidden()
    assert page.locator("img[alt^='Accuracy over training time']").first.is_visible()
    context.close()


@pytest.mark.parametrize("how", ["click", "Enter", "Space"])
def test_a_header_sorts_by_mouse_and_by_keys(page, pages, how):
    opened(page, pages, "by_hand.html")
    table = page.locator("#methods table", has_text="top-k 10 %").first
    header = table.locator("th[scope=col]", has_text="time (s)").first

    def press() -> list[str]:
        button = header.locator("button")
        button.click() if how == "click" else button.press(how)
        return table.evaluate(COLUMN, 5)

    assert header.get_attribute("aria-sort") == "none"
    assert press() == ["0.5", "5", "10"]
    assert header.get_attribute("aria-sort") == "ascending"
    assert press() == ["10", "5", "0.5"]
    assert header.get_attribute("aria-sort") == "descending"
    other = table.locator("th[scope=col] button").first
    other.press("Enter")
    assert header.get_attribute("aria-sort") == "none"
    assert table.evaluate(COLUMN, 0) == ["all-reduce", "top-k 1 %", "top-k 10 %"]


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
    assert page.locator("details:not([open])").count() >= 1
    assert page.pdf().startswith(b"%PDF")
    assert page.locator("details:not([open])").count() == 0
