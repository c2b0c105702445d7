"""The figures of a step's parts, and of who is first at which rate of links."""

from math import nan

import pandas as pd
import pytest

from harness.records.run_directory import Span
from harness.reporting.figures import rates, timeline
from harness.reporting.figures.styles import styles
from harness.reporting.figures.theme import NothingToDraw


def step(comm_s: float, began_s: float = 7.0) -> pd.DataFrame:
    parts = [("forward", -1, 0, 1), ("backward", 0, 1, 2), ("backward", 1, 2, 3)]
    parts += [("compress", 0, 2, 2.5), ("communicate", 0, 2.5, 2.5 + comm_s)]
    parts += [("communicate", 1, 3 + comm_s, 3 + 2 * comm_s)]
    rows = [Span(5, 0, kind, n, began_s + a, began_s + b) for kind, n, a, b in parts]
    return pd.DataFrame(rows, columns=Span._fields)


def panels(**spans: pd.DataFrame):
    figure = timeline.one_step(spans, "a title")
    return {axes.get_title(loc="left").split(":")[0]: axes for axes in figure.axes}


def test_the_longest_step_is_first_and_all_begin_at_zero():
    found = panels(quick=step(0.5), slow=step(2.0), middle=step(1.0))
    assert list(found) == ["slow", "middle", "quick"]
    for axes in found.values():
        assert min(bar.get_x() for bar in axes.patches) == 0
    assert found["slow"].get_xlim()[1] == pytest.approx(1.02 * 7)
    assert "7 s, of which 4 after computation" in found["slow"].get_title(loc="left")


def test_every_span_is_a_bar_on_its_lane_in_the_method_s_colour():
    axes = panels(topk=step(1.0), allreduce=step(0.1))["topk"]
    by_lane = [[] for _ in timeline.LANES]
    for bar in axes.patches:
        by_lane[round(bar.get_y() + 0.4)].append((bar.get_x(), bar.get_width()))
    assert by_lane == [[(0, 1), (1, 1), (2, 1)], [(2, 0.5)], [(2.5, 1), (4, 1)]]
    from matplotlib.colors import to_hex

    sent = [bar for bar in axes.patches if round(bar.get_y() + 0.4) == 2]
    wanted = styles(["topk", "allreduce"])["topk"].color
    assert {to_hex(bar.get_facecolor()) for bar in sent} == {wanted.lower()}
    assert [text.get_text() for text in axes.texts] == ["1", "2", "1", "1", "2"]
    assert sorted(line.get_xdata()[0] for line in axes.lines) == [3, 5]  # computed, over


def test_a_step_much_longer_than_all_others_is_cut():
    found = panels(far=step(30.0), near=step(0.5))
    assert "(cut)" in found["far"].get_title(loc="left")
    assert found["near"].get_xlim()[1] < 6 and "(cut)" not in found["near"].get_title(loc="left")


def test_without_spans_there_is_nothing_to_draw():
    with pytest.raises(NothingToDraw, match=r"timeline\.csv"):
        timeline.one_step({"topk": pd.DataFrame(columns=Span._fields)})


def times(**by_rate: float) -> pd.DataFrame:
    means = pd.Series({float(rate[1:]): mean for rate, mean in by_rate.items()})
    return pd.DataFrame({"mean_s": means, "low_s": means * 0.9, "high_s": means * 1.1})


def test_who_is_first_at_a_rate_is_marked_and_notes_are_in_the_legend() -> None:
    lines = {"dense": times(_2=90.0, _8=30.0, _32=10.0), "local": times(_2=40.0, _8=35.0, _32=nan),
             "never": times(_2=nan, _8=nan, _32=nan)}  # fmt: skip
    figure = rates.times_over_rates(lines, "time (s)", notes={"never": "0 of 6"})
    (axes,) = figure.axes
    first = {(float(x), float(y)) for line in axes.get_lines()
             if line.get_markersize() == rates.FIRST_SIZE
             for x, y in line.get_xydata()}  # fmt: skip
    assert first == {(2.0, 40.0), (8.0, 30.0), (32.0, 10.0)}
    (legend,) = figure.legends
    assert {each.get_text() for each in legend.get_texts()} == {"dense", "local", "never: 0 of 6"}


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
