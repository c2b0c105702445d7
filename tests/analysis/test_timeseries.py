"""What a run did from step to step, of runs whose answers are known."""

import pandas as pd
import pytest

from harness.records import columns
from harness.records.run_directory import LinkSample, Step
from harness.reporting.analysis import timeseries
from tests import records_by_hand as by_hand


def steps(count: int = 40, step_s: float = 0.5, **known) -> pd.DataFrame:
    rows = [
        by_hand.step(n, rank, time_s=step_s * (n + 1), **known)
        for n in range(count)
        for rank in (0, 1)
    ]
    return pd.DataFrame(rows, columns=[*columns.of(Step)])


def test_throughput_is_that_of_all_workers_at_any_time():
    found = timeseries.throughput(steps())
    assert found.throughput.to_numpy() == pytest.approx(2 * 10 / 0.5)
    assert found.time_s.iloc[-1] == 20 and found.time_s.iloc[0] >= 3 * 0.5


def test_throughput_counts_what_was_done_in_the_window_before():
    rows = pd.concat([steps(10), steps(10, 1.0).assign(step=lambda t: t.step + 10)])
    rows.loc[rows.step >= 10, "time_s"] += 5
    found = timeseries.throughput(rows, window_s=2.0).set_index("time_s").throughput
    assert found[5.0] == pytest.approx(40) and found[15.0] == pytest.approx(20)


def test_goodput_is_what_arrived_in_the_window():
    # 1 Mbit arrives at each worker every 0.5 s for 5 s, then nothing.
    rows = [
        by_hand.step(n, rank, received_bytes=125_000 if n < 10 else 0)
        for n in range(20)
        for rank in range(2)
    ]
    table = pd.DataFrame(rows, columns=[*columns.of(Step)])
    found = timeseries.goodput(table, window_s=1.0).set_index("time_s")
    assert found.goodput_mbit[1.0] == pytest.approx(2) and found.goodput_mbit[5.0] == pytest.approx(
        2
    )
    assert found.goodput_mbit[5.5] == pytest.approx(1) and found.goodput_mbit[10.0] == 0


def test_density_over_time_is_the_mean_over_workers():
    rows = [by_hand.step(n, rank, density=0.1 + 0.2 * rank) for n in range(2) for rank in range(2)]
    found = timeseries.density(pd.DataFrame(rows, columns=[*columns.of(Step)]))
    assert found.time_s.tolist() == [0.5, 1.0] and found.density.tolist() == pytest.approx(
        [0.2] * 2
    )


def test_planned_rate_is_that_of_the_slowest_link():
    rows = [(0.0, "up0", 9.0), (0.0, "up1", 5.0), (1.0, "up0", 2.0), (1.1, "up1", 7.0)]
    links = pd.DataFrame([LinkSample(time, link, rate, rate, 0, 0, 0) for time, link, rate in rows])
    assert timeseries.planned_rate(links).planned_mbit.tolist() == [5, 2, 2]
    assert timeseries.planned_rate(pd.DataFrame(columns=LinkSample._fields)).empty
    rows = [(0.0, "up0", 9.0), (0.0, "trunk_up", 5.0), (1.0, "trunk_up", 11.0)]
    links = pd.DataFrame([LinkSample(time, link, rate, rate, 0, 0, 0) for time, link, rate in rows])
    assert timeseries.planned_rate(links).planned_mbit.tolist() == [5, 9]  # the trunk is a link too


def test_running_goodput_is_bits_over_the_time_of_communication_alone():
    found = timeseries.running_goodput(steps(received_bytes=50_000, comm_s=0.2))
    assert found.goodput_mbit.to_numpy() == pytest.approx(50_000 * 8 / 0.2 / 1e6)
    assert list(found.step) == list(range(40))


def test_running_goodput_follows_a_change_within_a_tenth_of_the_run():
    table = steps(received_bytes=100_000, comm_s=0.2)
    table.loc[table.step >= 20, "comm_s"] = 0.4
    found = timeseries.running_goodput(table).goodput_mbit
    assert found[19] == pytest.approx(4) and found[23] == pytest.approx(2) and 2 < found[21] < 4


def test_a_run_that_never_communicates_has_no_goodput():
    assert timeseries.running_goodput(steps(comm_s=0.0)).goodput_mbit.isna().all()


def test_a_density_is_what_was_sent_where_that_is_known():
    rows = [by_hand.step(0, density=0.005, achieved_density=0.027), by_hand.step(1, density=0.005)]
    steps = pd.DataFrame(rows, columns=[*columns.of(Step)])
    for found in (timeseries.density(steps), timeseries.by_step(steps)):
        assert found.density.tolist() == pytest.approx([0.027, 0.005])


def test_by_step_is_the_mean_density_and_the_samples_of_each_step():
    table = steps(3)
    table.loc[table["rank"] == 1, "density"] = 0.3
    found = timeseries.by_step(table)
    assert found.density.to_numpy() == pytest.approx(0.2)
    assert found.throughput.to_numpy() == pytest.approx(40)
