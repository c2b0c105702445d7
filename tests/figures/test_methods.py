"""What is drawn is what was given, and no figure is empty."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.container import BarContainer

from harness.records.outputs import OutputFolder
from harness.reporting.figures import methods, theme

METHODS = ["allreduce", "topk_0.1", "dc2_da2"]


def comparison() -> pd.DataFrame:
    """As `metrics.compare` gives it: means 1, 2, 3 with intervals of half a unit on each side."""
    table = pd.DataFrame({"method": METHODS, "metric": "test_accuracy", "diverged": [0, 0, 1]})
    for name in ("speedup", "normalised_throughput", "time_s", "final"):
        mean = pd.Series([1.0, 2.0, 3.0])
        table = table.assign(**{name: mean, f"{name}_low": mean - 0.5, f"{name}_high": mean + 0.5})
    return table.assign(compute_s=0.3, compress_s=0.1, exposed_s=[0.5, 0.2, 0.0], iteration_s=0.9)


def lines(axes) -> dict[str, list]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


def bar_widths(axes) -> list[list[float]]:
    bars = [found for found in axes.containers if isinstance(found, BarContainer)]
    return [[bar.get_width() for bar in container] for container in bars]


def assert_not_empty(figure) -> None:
    assert figure.axes and all(axes.has_data() for axes in figure.axes)
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)


@pytest.mark.parametrize("draw", [methods.quality_over_time_bars, methods.throughput_bars])
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
    (axes,) = methods.quality_over_time_bars(table).axes
    assert bar_widths(axes)[2] == [0]
    assert "0 (diverged)" in [text.get_text() for text in axes.texts]


def test_quality_time_has_one_point_per_method():
    figure = methods.quality_time(comparison())
    (axes,) = figure.axes
    drawn = lines(axes)
    assert [drawn[method] for method in METHODS] == [[[1, 1]], [[2, 2]], [[3, 3]]]
    assert axes.get_ylabel() == "final test accuracy" and "(emulated s)" in axes.get_xlabel()
    assert_not_empty(figure)


def test_quality_density_has_one_point_per_method():
    table = comparison().assign(density=[1.0, 0.1, 0.01], density_low=np.nan, density_high=np.nan)
    (axes,) = methods.quality_density(table).axes
    drawn = lines(axes)
    assert [drawn[method] for method in METHODS] == [[[1, 1]], [[0.1, 2]], [[0.01, 3]]]
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "mean density"


def test_a_long_legend_makes_a_figure_higher_not_its_panel_smaller():
    names = [f"dc2_da{n}_randomk_from_profile_1c31d9_no_shared" for n in range(14)]
    more = {"density": 0.1, "density_low": np.nan, "density_high": np.nan}
    many = pd.concat([comparison().iloc[:1].assign(method=name, **more) for name in names])
    figures = [methods.quality_density(table) for table in (many.iloc[:2], many)]
    heights = []
    for figure in figures:
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height / figure.dpi)
    assert heights[1] > 0.8 * heights[0] > 1


def test_what_differs_little_in_time_is_on_a_plain_axis_and_much_on_a_logarithmic_one():
    (axes,) = methods.quality_time(comparison()).axes
    assert axes.get_xscale() == "linear"
    far = comparison().assign(time_s=[1, 2, 100], time_s_low=np.nan, time_s_high=np.nan)
    (axes,) = methods.quality_time(far).axes
    assert axes.get_xscale() == "log"
    said = [text.get_text() for text in axes.get_xticklabels()]
    assert {10.0, 100.0} <= {float(each) for each in said if each}  # plain, no powers of ten


def test_breakdown_stacks_the_parts():
    figure = methods.breakdown_bars(comparison())
    (axes,) = figure.axes
    drawn = np.array(bar_widths(axes))
    assert drawn == pytest.approx(np.array([[0.3] * 3, [0.1] * 3, [0.5, 0.2, 0.0]]))
    assert lines(axes)["iteration"] == [[0.9, 0], [0.9, 1], [0.9, 2]]
    starts = [bar.get_x() for bar in axes.containers[2]]
    assert starts == pytest.approx([0.4] * 3)
    assert_not_empty(figure)


@pytest.mark.parametrize("draw, column", [
    (methods.quality_over_time_bars, "speedup"),
    (methods.throughput_bars, "normalised_throughput"),
    (methods.quality_time, "final"),
    (methods.breakdown_bars, "iteration_s"),
])  # fmt: skip
def test_without_numbers_there_is_no_figure(draw, column):
    with pytest.raises(theme.NothingToDraw, match=column):
        draw(comparison().assign(**{column: np.nan}))


def test_save_writes_svg_and_where_asked_pdf_with_embedded_text(tmp_path):
    drawn = methods.quality_over_time_bars(comparison())
    out = OutputFolder(tmp_path)
    assert len(theme.save(drawn, out, "alone")) == len(list(tmp_path.iterdir())) == 1
    svg, pdf = theme.save(drawn, out / "new", "topk_0.1", pdf=True)
    assert svg.name == "topk_0.1.svg" and b"<svg" in svg.read_bytes()
    assert pdf.name == "topk_0.1.pdf" and b"/Type0" in pdf.read_bytes()  # font type 42
