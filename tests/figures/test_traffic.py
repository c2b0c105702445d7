"""The figure of links over time draws what they were told, carried, held and dropped."""

import pytest

from harness.records.run_directory import LinkSample
from harness.reporting.analysis import load
from harness.reporting.figures import link_load, theme, traffic
from tests import records_by_hand as by_hand


def drawn(axes) -> dict[str, list]:
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    return {label: values for label, values in lines.items() if not label.startswith("_")}


def test_a_trunk_has_a_column_of_panels_per_way(tmp_path):
    run = by_hand.contended(tmp_path / "r")
    table = link_load.over_time(load.links(run))
    figure = traffic.links_time(table, link_load.competing(run, 20.0), "t")
    rate, other, queue, _, drops, _ = figure.axes
    assert (rate.get_title(), other.get_title()) == ("trunk, up", "trunk, down")
    assert drawn(rate)["planned"] == [8.0] * 11 + [4.0] * 10
    assert drawn(rate)["carried"][2:] == pytest.approx([8.0] * 19)
    assert max(drawn(queue)["carried"]) == pytest.approx(1.0)
    assert drawn(drops)["carried"] == [0] + [2] * 20
    assert len(rate.patches) == 2  # the spans of competing flows
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["planned", "carried", "competing flows"]
    assert rate.get_ylim()[1] > 8 and drops.get_xlim() == (0, 20)


def test_many_links_are_a_band_with_their_median(tmp_path):
    rows = [
        LinkSample(float(s), f"{way}{node}", 5.0 + node, 5.0 + node, s * 10**5 * node, 0, 0)
        for s in range(5)
        for way in ("up", "down")
        for node in range(5)
    ]
    run = by_hand.run(tmp_path / "r", by_hand.config("topk"), links=rows)
    figure = traffic.links_time(link_load.over_time(load.links(run)), [])
    rate = figure.axes[0]
    assert rate.get_title() == "5 links, up"
    assert drawn(rate)["planned, median"] == [7.0] * 5
    low, high = rate.collections[0].get_datalim(rate.transData).intervaly
    assert (low, high) == (5, 9)
    assert figure.axes[4].get_ylim() == (0, 1)  # no drops


def test_too_few_rows_are_no_figure(tmp_path):
    rows = [LinkSample(float(s), "up0", 5.0, 5.0, s, 0, 0) for s in range(3)]
    run = by_hand.run(tmp_path / "r", by_hand.config("topk"), links=rows)
    with pytest.raises(theme.NothingToDraw, match=r"links\.csv"):
        traffic.links_time(link_load.over_time(load.links(run)), [])
