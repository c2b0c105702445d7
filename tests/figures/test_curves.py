"""Quality as training goes on: every evaluation is drawn, in the method's style."""

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from harness.reporting.figures import curves
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


def test_quality_steps_counts_epochs_where_they_are_known():
    (axes,) = curves.quality_steps(given(), "accuracy").axes
    assert axes.get_xlabel() == "step" and lines(axes)["allreduce"][1] == [20, 0.2]
    (axes,) = curves.quality_steps(given(), "accuracy", steps_per_epoch=5).axes
    assert axes.get_xlabel() == "epoch" and lines(axes)["allreduce"][1] == [4, 0.2]


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
