"""What links carried is told from their counters, on a clock that may stand still."""

import pandas as pd
import pytest

from harness.records.run_directory import LinkSample
from harness.reporting.analysis import load
from harness.reporting.figures import link_load
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
