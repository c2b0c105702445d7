"""What methods do over time and steps: all of it is drawn, beside what the links did."""

import numpy as np
import pandas as pd
import pytest

from harness.records.outputs import OutputFolder
from harness.reporting.figures import series, theme
from harness.reporting.figures.link_load import FlowSpan

METHODS = ["allreduce", "topk_0.1", "dc2_da2"]
RATE = pd.DataFrame({"time_s": [0.0, 20.0], "planned_mbit": [10.0, 5.0]})
DRAWN = {series.density_time: "density", series.throughput_time: "throughput",
         series.goodput_time: "goodput_mbit", series.running_goodput: "goodput_mbit"}  # fmt: skip
BENEATH = (series.density_time, series.throughput_time)


def given(column: str, methods=METHODS) -> dict[str, pd.DataFrame]:
    time_s = np.arange(1.0, 31.0)
    return {
        method: pd.DataFrame({"time_s": time_s, column: 0.1 + np.sin(time_s + place) ** 2})
        for place, method in enumerate(methods)
    }


def lines(axes) -> dict[str, list]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


@pytest.mark.parametrize("draw", DRAWN)
def test_every_value_is_drawn_and_the_rate_of_the_slowest_link(draw):
    tables = given(DRAWN[draw])
    first, *below = draw(tables, RATE).axes
    for method in METHODS:
        assert lines(first)[method] == tables[method].to_numpy().tolist()
    assert len(below) == (draw in BENEATH)
    rates = lines(below[0] if below else first)
    assert [[0, 10], [20, 5]] in rates.values()
    last = below[0] if below else first
    assert "(emulated s)" in last.get_xlabel() and first.get_ylabel()
    assert len(draw(tables, RATE.iloc[:0]).axes) == 1


@pytest.mark.parametrize("draw", DRAWN)
def test_competing_flows_are_shaded_and_the_axis_says_so(draw):
    figure = draw(given(DRAWN[draw]), RATE, "", [FlowSpan(2.0, 5.0, 1)])
    for axes in figure.axes:
        (span,) = axes.patches
        assert (span.get_x(), span.get_width()) == (2, 3)
    assert "shaded: competing flows" in figure.axes[-1].get_xlabel()


def test_an_axis_that_ends_before_the_slowest_method_says_so():
    tables = given("density")
    tables["allreduce"] = tables["allreduce"].assign(time_s=tables["allreduce"].time_s * 40)
    (axes,) = series.density_time(tables).axes
    assert axes.get_xlim()[1] == pytest.approx(30 * 1.02)
    assert "allreduce goes on to 1,200 s" in axes.get_xlabel()


def test_many_methods_are_in_several_panels_above_one_rate():
    names = [
        "allreduce",
        *(f"topk_0.{n}" for n in range(1, 8)),
        *(f"randomk_0.{n}" for n in (1, 2)),
    ]
    upper, middle, rate = series.throughput_time(given("throughput", names), RATE).axes
    assert set(lines(upper)) | set(lines(middle)) == set(names)
    assert upper.get_ylim() == middle.get_ylim() and "Mbit/s" in rate.get_ylabel()


def test_density_and_throughput_of_every_step():
    table = pd.DataFrame({"step": [0, 1], "density": [1.0, 0.1], "throughput": [10.0, 90.0]})
    upper, lower = series.density_throughput({"allreduce": table, "topk": table}).axes
    assert lines(upper)["topk"] == [[0, 1], [1, 0.1]] and upper.get_yscale() == "log"
    assert lines(lower)["topk"] == [[0, 10], [1, 90]] and lower.get_xlabel() == "step"


def test_many_methods_leave_room_for_density_and_throughput():
    names = [f"dc2_da{n}_randomk_from_profile_no_shared" for n in range(9)]
    names += [f"sampled_topk_0.{n}" for n in range(4)]
    steps = pd.DataFrame({"step": [0, 1], "density": [0.5, 0.1], "throughput": [10.0, 90.0]})
    tables = {"allreduce": steps.assign(density=1.0)} | {name: steps for name in names}
    figure = series.density_throughput(tables)
    rows = figure.axes
    assert len({axes.get_ylim() for axes in rows[::2]}) == 1 and len(rows) == 4
    assert len({axes.get_ylim() for axes in rows[1::2]}) == 1
    said = [line for axes in rows[::2] for line in lines(axes)]
    assert {line for line in said if not line.startswith("_")} == set(tables)
    figure.draw_without_rendering()
    one, other = (axes.get_legend().get_window_extent() for axes in rows[::2])
    assert not one.overlaps(other)
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in (one, other))


@pytest.mark.parametrize("draw", DRAWN)
def test_without_numbers_there_is_no_figure(draw):
    column = DRAWN[draw]
    tables = {method: table.assign(**{column: np.nan}) for method, table in given(column).items()}
    with pytest.raises(theme.NothingToDraw, match=column):
        draw(tables)


def test_the_same_figure_is_the_same_file(tmp_path):
    figures = [series.density_time(given("density"), title="once more") for _ in range(2)]
    first, again = (
        theme.save(figure, OutputFolder(tmp_path), f"{at}", pdf=True)
        for at, figure in enumerate(figures)
    )
    assert [path.suffix for path in first] == [".svg", ".pdf"]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_long_run_is_drawn_by_what_is_seen_of_it():
    steps = 20_000
    density = np.where(np.arange(steps) == 7777, 0.9, 0.1 + 0.01 * np.random.rand(steps))
    table = pd.DataFrame({"time_s": np.arange(steps) / 10.0, "density": density})
    (axes,) = series.density_time({"topk": table}).axes
    (line,) = axes.get_lines()
    assert len(line.get_xdata()) <= theme.MOST_POINTS + 2
    assert [777.7, 0.9] in line.get_xydata().tolist()  # what stands out stays
    assert line.get_xdata()[0] == 0 and line.get_xdata()[-1] == table.time_s.iloc[-1]
    short = table.iloc[:50]
    assert theme.thinned(short, "density") is short
