"""Against sparsity and life-span: bars of a step's parts, losses and quality, of known tables."""

import math

import pandas as pd
import pytest

from harness.reporting.figures import theme
from papers.dct import plots
from tests.papers.dct.test_threshold_plots import inside

PARTS = {"compute_s": 0.1, "compress_s": 0.02, "exposed_s": 0.03}


def times() -> pd.DataFrame:
    rows = [("dense", "dense", 0.2, 0.0), ("a", "75 %", 0.15, -0.25), ("b", "95 %", 0.25, 0.25)]
    columns = ["method", "place", "iteration_s", "change"]
    return pd.DataFrame(rows, columns=columns).assign(
        iteration_s_low=[math.nan, 0.14, 0.2], iteration_s_high=[math.nan, 0.16, 0.3], **PARTS
    )


def test_bars_are_the_parts_of_a_step_in_order_with_their_change():
    figure = plots.step_times(times(), "sparsity", "dense")
    (axes,) = figure.axes
    heights = [bar.get_height() for group in axes.containers[:3] for bar in group]
    assert heights == pytest.approx([0.1] * 3 + [0.02] * 3 + [0.03] * 3)
    bottoms = [bar.get_y() for bar in axes.containers[2]]
    assert bottoms == pytest.approx([0.12] * 3)
    assert [text.get_text() for text in axes.texts] == ["", "-25 %", "+25 %"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["dense", "75 %", "95 %"]
    assert "(emulated s)" in axes.get_ylabel() and "against dense" in axes.get_xlabel()
    marks = axes.containers[3].lines[0]
    assert marks.get_ydata().tolist() == [0.2, 0.15, 0.25]
    spans = [segment[:, 1].tolist() for segment in axes.containers[3].lines[2][0].get_segments()]
    assert spans[1] == pytest.approx([0.14, 0.16]) and spans[2] == pytest.approx([0.2, 0.3])
    assert spans[0] == pytest.approx([0.2, 0.2]) and inside(figure)
    with pytest.raises(theme.NothingToDraw, match="iteration_s"):
        plots.step_times(times().assign(iteration_s=math.nan), "sparsity", "dense")


def line(*values: float) -> pd.DataFrame:
    return pd.DataFrame({"step": range(len(values)), "value": values, "low": 0.1, "high": 9.0})


def test_losses_are_above_what_they_are_over_the_baseline_s():
    own = {"allreduce": line(3, 2), "dct_dp_0.05": line(4, 3)}
    upper, lower = plots.losses(own, {"dct_dp_0.05": line(33, 50)}, "allreduce").axes
    assert {each.get_label() for each in upper.get_lines()} == set(own)
    zero_and_one = {each.get_label(): each.get_ydata() for each in lower.get_lines()}
    assert list(zero_and_one["dct_dp_0.05"]) == [33, 50]
    assert "%" in lower.get_ylabel() and lower.get_xlabel() == "step"
    assert len(plots.losses(own, {}, None).axes) == 1
    with pytest.raises(theme.NothingToDraw, match="loss"):
        plots.losses({"allreduce": line(math.nan)}, {}, None)


def quality(*pairs: tuple[str, float, float]) -> pd.DataFrame:
    table = pd.DataFrame(pairs, columns=["family", "density", "value"])
    return table.assign(low=table.value - 1, high=table.value + 1)


def test_every_metric_and_setting_has_a_panel_and_sparsity_its_place():
    few = quality(("dct_mp", 1.0, 0.0), ("dct_mp", 0.05, 2.0), ("dct_mp", 0.25, -1.0))
    more = quality(("dct_mp", 1.0, 0.0), ("dct_mp", 0.5, 5.0))
    metrics = {"loss, %\nover dense's": {"2 stages": few, "3 stages": more},
               "bleu": {"2 stages": few.iloc[:0], "3 stages": few.iloc[:0]}}  # fmt: skip
    figure = plots.quality_sparsity(metrics, "title")
    left, right = figure.axes
    assert (left.get_title(), right.get_title()) == ("2 stages", "3 stages")
    said = [text.get_text() for text in left.get_xticklabels()]
    assert said == ["0", "50", "75", "95"]
    drawn = {
        axes: {str(c.get_label()): c.lines[0].get_xydata().tolist() for c in axes.containers}
        for axes in (left, right)
    }
    (points,) = drawn[left].values()
    assert points == [[0, 0], [2, -1], [3, 2]]
    assert list(drawn[right].values()) == [[[0, 0], [1, 5]]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["dct_mp"]
    assert inside(figure)
    with pytest.raises(theme.NothingToDraw, match="metric"):
        plots.quality_sparsity({"bleu": {"": few.iloc[:0]}})
