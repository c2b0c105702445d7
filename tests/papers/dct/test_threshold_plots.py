"""Thresholds, shares and histograms: every value is drawn, and nothing is cut off."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from harness.records.run_directory import Bin
from harness.reporting.figures import theme
from harness.reporting.figures.styles import style
from papers.dct import plots, watched
from papers.dct.plots import of_density

DENSITIES = (0.5, 0.25, 0.1, 0.05, 0.02)


def given(layers=("12.weight",), kinds=()) -> pd.DataFrame:
    rows = [
        {"of": of, "density": d, "step": s, "value": 1 / d + s, "low": 1.0, "high": 60.0, "kind": k}
        for of in layers
        for d in DENSITIES
        for s in (0, 5, 10)
        for k in (kinds or ("",))
    ]
    table = pd.DataFrame(rows)
    return table if kinds else table.drop(columns="kind")


def inside(figure) -> bool:
    """Whether what a figure says, legends and titles too, is on its sheet."""
    figure.draw_without_rendering()
    sheet, renderer = figure.bbox, figure._get_renderer()
    texts = [*figure.legends, *[axes.title for axes in figure.axes]]
    boxes = [text.get_window_extent(renderer) for text in texts]
    return all(sheet.x0 <= box.x0 and box.x1 <= sheet.x1 for box in boxes if box.width)


def test_every_threshold_is_drawn_in_the_look_of_its_density():
    upper, lower = plots.thresholds(given(("a", "b")), "threshold").axes
    assert (upper.get_title(), lower.get_title()) == ("a", "b")
    drawn = {tuple(line.get_ydata()): line for line in lower.get_lines()}
    for density in DENSITIES:
        line = drawn[(1 / density, 1 / density + 5, 1 / density + 10)]
        assert line.get_xdata().tolist() == [0, 5, 10]
        chosen = of_density(density)
        assert (line.get_marker(), to_hex(line.get_color())) == (
            chosen.marker,
            chosen.color.lower(),
        )
    assert len(lower.collections) == len(DENSITIES)  # intervals
    assert upper.get_yscale() == "log" and lower.get_xlabel() == "step" and upper.get_ylabel()
    assert len({str(of_density(density).marker) for density in DENSITIES}) == len(DENSITIES)


def test_of_two_kinds_the_second_is_dotted_and_hollow():
    figure = plots.thresholds(given(kinds=("measured", "Laplace fit")), "threshold")
    lines = figure.axes[0].get_lines()
    assert [line.is_dashed() for line in lines].count(True) == len(DENSITIES) == len(lines) / 2
    assert {line.get_markerfacecolor() for line in lines if line.is_dashed()} == {"white"}
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == [*(f"density {d:g}" for d in DENSITIES), "measured", "Laplace fit"]


@pytest.mark.parametrize("kinds", [(), (watched.WITHOUT, watched.WITH)])
def test_a_legend_is_not_cut_off(kinds):
    assert inside(plots.thresholds(given(kinds=kinds), "threshold"))
    names = {f"dct_mp_laplace_{density:g}": density for density in DENSITIES}
    shares = {name: given().drop(columns="of").query("density == @d") for name, d in names.items()}
    assert inside(plots.achieved_density(shares, names, "activations"))


def test_a_threshold_of_zero_is_off_a_logarithmic_axis_and_none_is_no_figure():
    lines = given()
    zero = lines.assign(value=lines.value.where(lines.step > 0, 0.0), low=0.0)
    axes = plots.thresholds(zero, "threshold").axes[0]
    assert 0 < axes.get_ylim()[0] < zero.value[zero.value > 0].min()
    for nothing in (lines.iloc[:0], lines.assign(value=0.0)):
        with pytest.raises(theme.NothingToDraw, match="watch"):
            plots.thresholds(nothing, "threshold")


def test_what_was_sent_is_beside_what_was_asked_for():
    table = pd.DataFrame({"step": [0, 1], "value": [0.2, 0.15], "low": math.nan, "high": math.nan})
    unknown = table.assign(value=math.nan)
    shares = {"dct_mp_laplace_0.25": table, "allreduce": unknown}
    asked = {"dct_mp_laplace_0.25": 0.25, "allreduce": 1.0}
    (axes,) = plots.achieved_density(shares, asked, "activations").axes
    line, target = axes.get_lines()
    assert line.get_ydata().tolist() == [0.2, 0.15] and set(target.get_ydata()) == {0.25}
    assert to_hex(line.get_color()) == style("dct_mp_laplace_0.25").color.lower()
    assert "activations" in axes.get_ylabel() and axes.get_ylim()[1] < 1
    with pytest.raises(theme.NothingToDraw, match="achieved_density"):
        plots.achieved_density({"allreduce": unknown}, asked, "activations")


def test_a_density_is_a_whole_line_of_its_own():
    looks = [of_density(density) for density in (0.25, 0.1, 0.05)]
    assert {look.linestyle for look in looks} == {"-"} and not any(look.hollow for look in looks)
    assert len({(look.color, look.marker) for look in looks}) == 3


def test_a_histogram_is_drawn_with_the_fits_of_its_moments():
    edges = np.linspace(-4, 4, 41)
    bins = [
        Bin(step, 0, cut, low, high, 100 + 10 * place, 0.0, 1.0)
        for cut in ("cut0", "cut1")
        for step in (5, 900)
        for place, (low, high) in enumerate(zip(edges, edges[1:], strict=False))
    ]
    table = pd.DataFrame(bins).assign(seed=0)
    shares = pd.concat(
        [watched.shares(group) for _, group in table.groupby(["of", "step"])], ignore_index=True
    )
    figure = plots.activations(shares, watched.distances(table), "title")
    assert [axes.get_title() for axes in figure.axes] == [
        f"cut{cut}, step {step}" for cut in (0, 1) for step in (5, 900)
    ]
    first = figure.axes[0]
    (bars,) = first.patches
    assert bars.get_data().values.sum() == pytest.approx(1)
    fits = {line.get_label(): line.get_ydata() for line in first.get_lines()}
    assert set(fits) == {"Laplace fit", "normal fit"}
    assert fits["Laplace fit"].sum() == pytest.approx(1 - math.exp(-4 * math.sqrt(2)))
    assert first.get_yscale() == "log" and "Laplace 0." in first.texts[0].get_text()
    assert inside(figure)
    with pytest.raises(theme.NothingToDraw, match="histograms.csv"):
        plots.activations(shares.iloc[:0], watched.distances(table))
