"""A method looks the same in every figure, and unlike every other."""

from hypothesis import given
from hypothesis import strategies as st

from harness.reporting.figures.styles import BASELINE, LOOKS, MOST_TOGETHER, panels, style, styles

NAMES = st.text("abk_0.", min_size=1, max_size=6)


@given(st.sets(NAMES, max_size=LOOKS))
def test_without_colour_the_methods_of_a_figure_differ(names: set[str]) -> None:
    looks = {(str(each.marker), each.hollow) for each in styles(names).values()}
    assert len(looks) == len(names)


@given(st.sets(NAMES, max_size=8))
def test_a_style_is_a_name_s_own_unless_another_would_look_like_it(names: set[str]) -> None:
    chosen = styles(names)
    for name, found in chosen.items():
        others = [chosen[other] for other in names if other != name]
        own = style(name)
        clash = [each for each in others if (each.marker, each.hollow) == (own.marker, own.hollow)]
        assert found == own or clash
        assert styles([name])[name] == own


def test_more_methods_than_looks_differ_in_colour() -> None:
    many = [f"x{number}" for number in range(100)]
    assert len(set(styles(many).values())) == 100


def test_what_is_not_compressed_is_black() -> None:
    assert styles(["allreduce", "x"])["allreduce"] == BASELINE


def test_many_methods_share_out_over_panels_with_the_baseline_in_each() -> None:
    few = [f"x{number}" for number in range(MOST_TOGETHER)]
    assert panels(few) == [few]
    names = [f"x{number:02}" for number in range(MOST_TOGETHER * 2)] + ["allreduce"]
    groups = panels(names)
    assert sorted({name for group in groups for name in group}) == sorted(names)
    assert all(group[0] == "allreduce" and len(group) <= MOST_TOGETHER for group in groups)
