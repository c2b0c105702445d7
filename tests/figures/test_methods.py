"""What is drawn is what was given, and no figure is empty."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer

from harness.figures import look, methods

METHODS = ["allreduce", "topk_0.1", "dc2_da2"]


def comparison() -> pd.DataFrame:
    """As `metrics.compare` gives it: means 1, 2, 3 with intervals of half a unit on each side."""
    table = pd.DataFrame({"method": METHODS, "metric": "test_accuracy", "diverged": [0, 0, 1]})
    for name in ("speedup", "normalised_throughput", "time_s", "final"):
        mean = pd.Series([1.0, 2.0, 3.0])
        table = table.assign(**{name: mean, f"{name}_low": mean - 0.5, f"{name}_high": mean + 0.5})
    return table.assign(compute_s=0.3, compress_s=0.1, exposed_s=[0.5, 0.2, 0.0], iteration_s=0.9)


def series(column: str) -> dict[str, pd.DataFrame]:
    time_s = np.arange(1.0, 31.0)
    return {
        method: pd.DataFrame({"time_s": time_s, column: 0.1 + np.sin(time_s + place) ** 2})
        for place, method in enumerate(METHODS)
    }


def lines(axes) -> dict[str, list]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


def bar_widths(axes) -> list[list[float]]:
    bars = [found for found in axes.containers if isinstance(found, BarContainer)]
    return [[bar.get_width() for bar in container] for container in bars]


def assert_not_empty(figure) -> None:
    assert figure.axes and all(axes.has_data() for axes in figure.axes)
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)


def test_styles_depend_on_the_name_alone_and_differ():
    many = [*look.STYLES, "allreduce", "powersgd", "qsgd", "a_name_of_tomorrow"]
    chosen = look.styles(many)
    assert len(set(chosen.values())) == len(many)
    assert len({(style.color, style.marker) for style in chosen.values()}) == len(many)
    assert look.styles(["dc2_da2", "topk_0.1"])["dc2_da2"] == chosen["dc2_da2"]
    assert look.styles(["qsgd", "topk_0.1"])["qsgd"] == look.styles(["qsgd"])["qsgd"]


@pytest.mark.parametrize("draw", [methods.speedup_bars, methods.throughput_bars])
def test_bars_show_means_intervals_and_the_baseline(draw):
    figure = draw(comparison())
    (axes,) = figure.axes
    assert bar_widths(axes) == [[1], [2], [3]]
    assert [label.get_text() for label in axes.get_yticklabels()] == METHODS
    ends = [bar.get_segments()[0][:, 0].tolist() for bar in axes.collections]
    assert ends == [[0.5, 1.5], [1.5, 2.5], [2.5, 3.5]]
    assert [[1, 0], [1, 1]] in [line.get_xydata().tolist() for line in axes.get_lines()]
    assert_not_empty(figure)


def test_a_diverged_method_is_a_bar_of_zero_that_says_so():
    table = comparison().assign(speedup=[1, 2, 0], speedup_low=np.nan, speedup_high=np.nan)
    (axes,) = methods.speedup_bars(table).axes
    assert bar_widths(axes)[2] == [0]
    assert "0 (diverged)" in [text.get_text() for text in axes.texts]


def test_quality_time_has_one_point_per_method():
    figure = methods.quality_time(comparison())
    (axes,) = figure.axes
    drawn = lines(axes)
    assert [drawn[method] for method in METHODS] == [[[1, 1]], [[2, 2]], [[3, 3]]]
    assert axes.get_ylabel() == "final test accuracy" and "(emulated s)" in axes.get_xlabel()
    assert_not_empty(figure)


def test_quality_curves_draw_every_evaluation_in_the_style_of_the_method():
    curves = {
        method: pd.DataFrame({"time_s": [1.0, 2], "value": [0.1, 0.2], "low": 0.0, "high": 0.3})
        for method in METHODS
    }
    figure = methods.quality_curves(curves, "accuracy")
    (axes,) = figure.axes
    assert lines(axes) == dict.fromkeys(sorted(METHODS), [[1, 0.1], [2, 0.2]])
    colors = {line.get_label(): to_hex(line.get_color()) for line in axes.get_lines()}
    assert colors["topk_0.1"] == look.STYLES["topk_0.1"].color.lower()
    assert_not_empty(figure)


def test_density_is_drawn_above_the_link_rate():
    given = series("density")
    rate = pd.DataFrame({"time_s": [0.0, 20.0], "planned_mbit": [10.0, 5.0]})
    figure = methods.density_time(given, rate)
    upper, lower = figure.axes
    for method in METHODS:
        assert lines(upper)[method] == given[method].to_numpy().tolist()
    assert list(lines(lower).values()) == [[[0, 10], [20, 5]]]
    assert_not_empty(figure)
    assert len(methods.density_time(given, rate.iloc[:0]).axes) == 1


def test_goodput_is_drawn_beside_the_link_rate():
    given = series("goodput_mbit")
    rate = pd.DataFrame({"time_s": [0.0, 20.0], "planned_mbit": [10.0, 5.0]})
    (axes,) = methods.goodput_time(given, rate).axes
    drawn = lines(axes)
    assert drawn["planned rate, slowest link"] == [[0, 10], [20, 5]]
    assert drawn["dc2_da2"] == given["dc2_da2"].to_numpy().tolist()


def test_an_axis_that_ends_before_the_slowest_method_says_so():
    given = series("density")
    given["allreduce"] = given["allreduce"].assign(time_s=given["allreduce"].time_s * 40)
    (axes,) = methods.density_time(given).axes
    assert axes.get_xlim()[1] == pytest.approx(30 * 1.02)
    assert "allreduce goes on to 1,200 s" in axes.get_xlabel()


def test_breakdown_stacks_the_parts():
    figure = methods.breakdown_bars(comparison())
    (axes,) = figure.axes
    drawn = np.array(bar_widths(axes))
    assert drawn == pytest.approx(np.array([[0.3] * 3, [0.1] * 3, [0.5, 0.2, 0.0]]))
    assert lines(axes)["iteration"] == [[0.9, 0], [0.9, 1], [0.9, 2]]
    starts = [bar.get_x() for bar in axes.containers[2]]
    assert starts == pytest.approx([0.4] * 3)
    assert_not_empty(figure)


@pytest.mark.parametrize(
    "draw, column",
    [
        (methods.speedup_bars, "speedup"),
        (methods.throughput_bars, "normalised_throughput"),
        (methods.quality_time, "final"),
        (methods.breakdown_bars, "iteration_s"),
    ],
)
def test_without_numbers_there_is_no_figure(draw, column):
    with pytest.raises(look.NothingToDraw, match=column):
        draw(comparison().assign(**{column: np.nan}))


def test_save_writes_both_formats_with_embedded_text(tmp_path):
    png, pdf = look.save(methods.speedup_bars(comparison()), tmp_path / "new" / "topk_0.1")
    assert png.name == "topk_0.1.png" and png.read_bytes().startswith(b"\x89PNG")
    assert pdf.name == "topk_0.1.pdf" and b"/Type0" in pdf.read_bytes()  # font type 42
