"""The figure of one step of each method, from spans made by hand."""

import pandas as pd
import pytest

from harness.records.run_directory import Span
from harness.reporting.figures import timeline
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
