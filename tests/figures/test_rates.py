"""Figures against the rate of links: who is first, what was measured, what never comes there."""

from math import nan

import pandas as pd
import pytest

from harness.reporting.figures import rates
from harness.reporting.figures.theme import NothingToDraw


def times(**by_rate: float) -> pd.DataFrame:
    means = pd.Series({float(rate[1:]): mean for rate, mean in by_rate.items()})
    return pd.DataFrame({"mean_s": means, "low_s": means * 0.9, "high_s": means * 1.1})


def test_who_is_first_at_a_rate_is_marked_and_notes_are_in_the_legend() -> None:
    lines = {
        "dense": times(_2=90.0, _8=30.0, _32=10.0),
        "local": times(_2=40.0, _8=35.0, _32=nan),
        "never": times(_2=nan, _8=nan, _32=nan),
    }
    figure = rates.times_over_rates(lines, "time (s)", notes={"never": "0 of 6"})
    (axes,) = figure.axes
    first = {
        (float(x), float(y))
        for line in axes.get_lines()
        if line.get_markersize() == rates.FIRST_SIZE
        for x, y in line.get_xydata()
    }
    assert first == {(2.0, 40.0), (8.0, 30.0), (32.0, 10.0)}
    (legend,) = figure.legends
    assert {each.get_text() for each in legend.get_texts()} == {
        "dense",
        "local",
        "never: 0 of 6",
    }


def test_what_was_measured_has_points_in_the_colour_of_its_line() -> None:
    lines = {"H = 1": pd.Series({50.0: 0.001, 5000.0: 0.1}), "H = 8": pd.Series({50.0: 0.01})}
    (axes,) = rates.over_rates(lines, {"H = 1": pd.Series({50.0: 0.002})}, "utilisation").axes
    line, _, points = axes.get_lines()
    assert points.get_color() == line.get_color() and points.get_linestyle() == "None"
    assert points.get_xydata().tolist() == [[50.0, 0.002]]
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_a_rate_that_no_link_has_is_left_out() -> None:
    (axes,) = rates.needed_rates({"H = 1": pd.Series({50.0: 9.0, 95.0: nan})}, "share (%)").axes
    assert axes.get_xticks().tolist() == [50.0, 95.0]


def test_no_numbers_are_no_figure() -> None:
    with pytest.raises(NothingToDraw):
        rates.times_over_rates({"never": times(_2=nan)}, "time (s)")
    with pytest.raises(NothingToDraw):
        rates.needed_rates({"H = 1": pd.Series({50.0: nan})}, "share (%)")
