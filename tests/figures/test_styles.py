"""A method looks the same in every figure, and unlike every other."""

from pathlib import Path

import pytest
import yaml

from harness.figures.styles import MOST_TOGETHER, STYLES, of_line, panels, style, styles

PAPERS = ("dc2_cifar10", "dc2_imagenet", "dc2_ptb", "netsense_resnet18", "netsense_vgg16")
PAPERS += ("dct_fig8", "dct_table7")
CONF = Path(__file__).resolve().parents[2] / "conf"
METHODS = sorted(file.stem for file in (CONF / "method").glob("*.yaml"))


def compared() -> dict[str, list[str]]:
    """The methods of each experiment's own sweep."""
    found = {}
    for file in (CONF / "experiment").glob("*.yaml"):
        told = yaml.safe_load(file.read_text())
        swept = told.get("hydra", {}).get("sweeper", {}).get("params", {}).get("method", "")
        found[file.stem] = [name.strip() for name in str(swept).split(",") if name.strip()]
    return found


def test_no_two_methods_whose_style_was_chosen_look_alike():
    assert len({(each.color, each.marker) for each in STYLES.values()}) == len(STYLES)
    assert len({each.hatch for each in STYLES.values()}) == len(STYLES)


@pytest.mark.parametrize("name", [name for name in compared() if name.startswith(PAPERS)])
def test_without_colour_the_methods_of_a_paper_s_experiment_differ(name):
    marked = [(str(style(each).marker), style(each).hollow) for each in compared()[name]]
    assert marked and len(set(marked)) == len(marked)


def test_styles_depend_on_the_name_alone():
    chosen = styles([*STYLES, "a_name_of_tomorrow"])
    for method in STYLES:
        assert styles([method])[method] == chosen[method]


def test_unknown_names_that_would_look_alike_do_not():
    many = [f"x{number}" for number in range(100)]
    assert len(set(styles(many).values())) == 100


def test_a_variant_looks_like_what_it_varies_but_for_one_thing():
    pairs = [("randomk_0.1", "topk_0.1"), ("dc2_randomk_da4", "dc2_da4")]
    pairs += [("topk_0.1_int64", "topk_0.1"), ("powersgd_no_ef", "powersgd")]
    for name, varied in pairs:
        own, base = style(name), style(varied)
        assert (own.color, own.marker) == (base.color, base.marker) and own != base
    assert of_line(style("randomk_0.1"))["markerfacecolor"] == "white"


def test_many_methods_share_out_over_panels_with_the_baseline_in_each():
    assert panels(STYLES) == [sorted(STYLES)] or len(STYLES) > MOST_TOGETHER
    names = compared()["dc2_imagenet_static"]
    first, second = panels(names)
    assert first[0] == second[0] == "allreduce"
    assert sorted({*first, *second}) == sorted(names)
    assert {style(name).hollow for name in second[1:]} == {True}
    for group in panels(METHODS):
        assert group[0] == "allreduce" and 1 < len(group) <= MOST_TOGETHER
