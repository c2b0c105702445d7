"""Quality as training goes on: every evaluation is drawn, in the method's style."""

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from harness.reporting.figures import curves, methods
from harness.reporting.figures.styles import style
from harness.reporting.figures.theme import NothingToDraw

METHODS = ["allreduce", "topk_0.1", "dc2_da2"]


def given(methods=METHODS, end_s: float = 2.0) -> dict[str, pd.DataFrame]:
    row = {"step": [10, 20], "time_s": [1.0, end_s], "value": [0.1, 0.2], "low": 0.0, "high": 0.3}
    return {method: pd.DataFrame(row) for method in methods}


def lines(axes) -> dict[str, list]:
    return {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}


def test_quality_curves_draw_every_evaluation_in_the_style_of_the_method():
    (axes,) = curves.quality_curves(given(), "test_accuracy").axes
    assert lines(axes) == dict.fromkeys(sorted(METHODS), [[1, 0.1], [2, 0.2]])
    colors = {line.get_label(): to_hex(line.get_color()) for line in axes.get_lines()}
    assert colors["topk_0.1"] == style("topk_0.1").color.lower()
    assert axes.get_ylabel() == "test accuracy" and len(axes.collections) == 3


@pytest.mark.parametrize(
    "draw",
    [curves.quality_curves, curves.quality_steps, methods.quality_time, methods.quality_density],
)
def test_the_target_is_a_line_across_every_figure_of_the_metric(draw):
    rows = [{"method": each, "metric": "accuracy", "time_s": 1.0, "final": 0.5, "density": 0.1}
            for each in METHODS]  # fmt: skip
    ends = dict.fromkeys(
        [f"{n}_{e}" for n in ("time_s", "final", "density") for e in ("low", "high")]
    )
    table = pd.DataFrame(rows).assign(**dict.fromkeys(ends, float("nan")))
    shown = (given(), "accuracy") if draw.__module__ == curves.__name__ else (table,)
    for target, found in ((0.42, [[0.42, 0.42]]), (None, []), (float("nan"), [])):
        (axes,) = draw(*shown, target=target).axes
        across = [line for line in axes.get_lines() if line.get_label().startswith("target")]
        assert [list(line.get_ydata()) for line in across] == found


def test_each_condition_has_its_own_target():
    conditions = {"200 Mbit/s": given(), "500 Mbit/s": given()}
    drawn = curves.quality_conditions(conditions, "accuracy", targets={"200 Mbit/s": 0.25})
    assert "target 0.25" in lines(drawn.axes[0]) and not any(
        name.startswith("target") for name in lines(drawn.axes[1])
    )


def test_long_titles_of_panels_and_of_a_figure_do_not_touch():
    long = (
        "network.rate_mbit 200, profile.nodes.0.of.low_mbit 12.5, emulation.compute paced, workers"
    )
    conditions = {f"{long} {number}": given() for number in (2, 4, 8, 16)}
    figure = curves.quality_conditions(conditions, "accuracy", f"experiment: {long}, {long}")
    figure.draw_without_rendering()
    drawn = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
    texts = [axes.title for axes in figure.axes if axes.get_title()] + [figure._suptitle]
    boxes = [text.get_window_extent(drawn) for text in texts]
    for at, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[at + 1 :])
        assert 0 <= box.x0 and box.x1 <= figure.bbox.width


def test_quality_is_drawn_over_steps():
    (axes,) = curves.quality_steps(given(), "accuracy").axes
    assert axes.get_xlabel() == "step" and lines(axes)["allreduce"][1] == [20, 0.2]


def test_many_methods_are_drawn_once_each_in_panels_of_one_scale():
    names = ["allreduce", *(f"{kind}_0.{n}" for kind in ("topk", "randomk") for n in range(1, 7))]
    upper, lower = curves.quality_curves(given(names), "accuracy").axes
    assert set(lines(upper)) | set(lines(lower)) == set(names)
    assert set(lines(upper)) & set(lines(lower)) == {"allreduce"}
    assert upper.get_ylim() == lower.get_ylim() and upper.get_legend() and lower.get_legend()


def test_each_condition_has_a_panel_and_a_method_one_entry_in_the_legend():
    conditions = {"200 Mbit/s": given(), "500 Mbit/s": given(METHODS[:2], 40.0)}
    figure = curves.quality_conditions(conditions, "accuracy")
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == tuple(conditions)
    assert set(lines(first)) == set(METHODS) and set(lines(second)) == set(METHODS[:2])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == sorted(METHODS)


def test_without_evaluations_there_is_no_figure():
    nothing = {"topk": given()["topk_0.1"].iloc[:0]}
    for draw in (curves.quality_curves, curves.quality_steps):
        with pytest.raises(NothingToDraw, match="value"):
            draw(nothing, "accuracy")
    with pytest.raises(NothingToDraw, match="value"):
        curves.quality_conditions({"a": nothing}, "accuracy")
    partly = {**given(), "topk": nothing["topk"]}
    assert len(curves.quality_conditions({"a": partly}, "accuracy").axes) == 1
