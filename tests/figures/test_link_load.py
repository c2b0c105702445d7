"""What links carried, told from their counters, and the figure of links over time."""

import pandas as pd
import pytest

from harness.records.run_directory import LinkSample
from harness.reporting.analysis import load
from harness.reporting.figures import link_load, theme, traffic
from tests import records_by_hand as by_hand


def links(*rows) -> pd.DataFrame:
    """Of up0: time, bytes, backlog, drops; planned 8 Mbit/s."""
    return pd.DataFrame([LinkSample(t, "up0", 8.0, 8.0, *counted) for t, *counted in rows])


def test_rates_queues_and_drops_of_an_even_flow(tmp_path):
    found = link_load.over_time(load.links(by_hand.contended(tmp_path / "r")))
    trunk = found[found.link == "trunk_up"]
    assert trunk.carried_mbit.iloc[2:].tolist() == pytest.approx([8.0] * 19)
    assert trunk.carried_mbit.iloc[:2].isna().all()  # nothing is known of before the first row
    assert trunk.backlog_ms.iloc[3] == pytest.approx(1.0) and trunk.backlog_ms.sum() == 1.0
    assert trunk.drops.tolist() == [0] + [2] * 20
    assert set(found.way[found.link == "trunk_down"]) == {"down"}


def test_what_passes_while_the_clock_stands_still_is_no_rate_but_its_drops_count():
    even = [(float(s), 10**6 * s, 0, 0) for s in range(4)]
    pause = [(3.0, 50 * 10**6, 9, 5), (3.0, 90 * 10**6, 0, 7)]
    after = [(float(s), 87 * 10**6 + 10**6 * s, 0, 7) for s in range(4, 8)]
    found = link_load.over_time(links(*even, *pause, *after))
    assert found.time_s.tolist() == list(range(8))
    assert found.carried_mbit.dropna().tolist() == pytest.approx([8.0] * 6)
    assert found.drops.tolist() == [0, 0, 0, 7, 0, 0, 0, 0]


def test_a_late_sample_makes_no_spike():
    found = link_load.over_time(
        links(*[(t, int(1e6 * t), 0, 0) for t in (0.0, 1, 2, 3.9, 4, 5, 6)])
    )
    assert found.carried_mbit.dropna().tolist() == pytest.approx([8.0] * 5)


def test_of_no_rows_and_of_one_there_is_no_rate(tmp_path):
    assert link_load.over_time(load.links(tmp_path)).empty
    assert link_load.over_time(links((0.0, 5, 0, 0))).carried_mbit.isna().all()


@pytest.mark.parametrize(
    ("names", "shown"),
    [(["up0", "down0"], ["up0", "down0"]), (["up0", "trunk_up", "down0"], ["trunk_up"])],
)
def test_a_trunk_stands_for_a_dumbbell(names, shown):
    assert link_load.shown_links(pd.DataFrame({"link": names})) == shown


def test_competing_flows_are_joined_where_they_overlap_and_last_to_the_end(tmp_path):
    def event(name, time_s):
        return {"event": f"flow_{name}", "time_s": time_s}

    times = [("started", None), ("started", 1.0), ("stopped", 2.0), ("stopped", 3.0)]
    events = [event(*each) for each in [*times, ("started", 5.0)]]
    run = by_hand.run(tmp_path / "r", by_hand.config("topk"), events=events)
    assert link_load.competing(run, 9.0) == [(0.0, 3.0, 2), (5.0, 9.0, 1)]
    alone = by_hand.run(tmp_path / "alone", by_hand.config("topk"))
    assert link_load.competing(alone, 9.0) == []


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
    rows = [LinkSample(float(s), f"{way}{node}", 5.0 + node, 5.0 + node, s * 10**5 * node, 0, 0)
            for s in range(5) for way in ("up", "down") for node in range(5)]  # fmt: skip
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
