"""A method looks the same in every figure, and unlike every other."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from harness.config.label import ALLREDUCE
from harness.reporting.figures.styles import (
    BASELINE,
    COLORS,
    LINES,
    MOST_TOGETHER,
    SHAPES,
    of_bar,
    of_page,
    panels,
    style,
    styles,
)

NAMES = st.text("abk_0.", min_size=1, max_size=6)
SEEN_APART = 25  # in CIE L*a*b*, where 2.3 is just noticed side by side
OF_SRGB = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = OF_SRGB.sum(axis=1)


def lab(color: str) -> np.ndarray:
    """L*, a*, b* of a colour (CIE 1976), by daylight."""
    gamma = np.array(to_rgb(color))
    linear = np.where(gamma <= 0.04045, gamma / 12.92, ((gamma + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(OF_SRGB @ linear / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colours_are_far_from_each_other_from_the_baseline_and_from_paper():
    for one, other in combinations([*COLORS, BASELINE.color, "white", "0.25", "0.75"], 2):
        if {one, other} & set(COLORS):
            assert np.linalg.norm(lab(one) - lab(other)) > SEEN_APART, (one, other)


@settings(deadline=None)
@given(st.sets(NAMES, max_size=40))
def test_up_to_forty_methods_all_look_unlike_and_none_like_the_baseline(names: set[str]) -> None:
    found = styles(names | {ALLREDUCE})
    lines = [(each.color, str(each.linestyle)) for each in found.values()]
    assert len(set(lines)) == len(lines)
    bars = [(look["facecolor"], look["hatch"]) for look in map(of_bar, found.values())]
    assert len(set(bars)) == len(bars)
    assert found[ALLREDUCE] == BASELINE
    assert all(found[name].color != BASELINE.color for name in names - {ALLREDUCE})


@settings(deadline=None)
@given(st.sets(NAMES, max_size=len(COLORS)))
def test_no_colour_is_shared_hatched_or_dashed_while_there_are_enough(names: set[str]) -> None:
    found = styles(names).values()
    assert len({each.color for each in found}) == len(names)
    assert all(each.hatch == "" and each.linestyle == LINES[0] for each in found)


@settings(deadline=None)
@given(st.sets(NAMES, max_size=len(SHAPES)))
def test_without_colour_the_methods_of_a_figure_differ(names: set[str]) -> None:
    looks = {(str(each.marker), each.hollow) for each in styles(names).values()}
    assert len(looks) == len(names)


@settings(deadline=None)
@given(st.sets(NAMES, max_size=8))
def test_a_style_is_a_name_s_own_unless_another_would_look_like_it(names: set[str]) -> None:
    chosen = styles(names)
    for name, found in chosen.items():
        own, others = style(name), [chosen[other] for other in names if other != name]
        assert found.color == own.color or own.color in {each.color for each in others}
        marks = {(str(each.marker), each.hollow) for each in others}
        assert found.marker == own.marker or (str(own.marker), own.hollow) in marks
        assert styles([name])[name] == own


@pytest.mark.parametrize("count", [44, 100])
def test_more_methods_than_that_differ_in_something(count: int) -> None:
    many = [f"x{number}" for number in range(count)]
    assert len(set(styles(many).values())) == count


def test_many_methods_share_out_over_panels_with_the_baseline_in_each() -> None:
    few = [f"x{number}" for number in range(MOST_TOGETHER)]
    assert panels(few) == [few]
    names = [f"x{number:02}" for number in range(MOST_TOGETHER * 2)] + ["allreduce"]
    groups = panels(names)
    assert sorted({name for group in groups for name in group}) == sorted(names)
    assert all(group[0] == "allreduce" and len(group) <= MOST_TOGETHER for group in groups)


@settings(deadline=None)
@given(st.sets(NAMES, min_size=2, max_size=len(COLORS)), st.data())
def test_on_one_page_a_method_has_one_look_whoever_else_is_in_a_figure(names, data) -> None:
    figures = data.draw(st.lists(st.sets(st.sampled_from(sorted(names)), min_size=1), max_size=5))
    with of_page({name: name for name in names}):
        looks = styles(names)
        assert len({each.color for each in looks.values()}) == len(names)
        for figure in figures:
            assert styles(figure) == {name: looks[name] for name in sorted(figure)}
        with of_page({name: name for name in (figures[0] if figures else names)}):
            assert styles(names) == looks
    assert styles(["topk"]) == {"topk": style("topk")}
