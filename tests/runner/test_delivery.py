"""Bytes that links carried are held against the integral of the plan while ranks communicated."""

from pathlib import Path

import numpy as np
import pytest

from harness.records.run_directory import Collective, Table
from harness.runner import delivery, validity_checks
from harness.runner.checks import CouldNotCheck
from harness.runner.delivery import Spans, StepFunction

RATE_MBIT, STEP_S, LENGTH_S, STEPS = 80.0, 0.5, 0.4, 40
BYTES_S = RATE_MBIT * 125_000
LINKS = ("up0", "down0", "up1", "down1")


def told(*plan: tuple[float, float], links=LINKS):
    """Events of a plan that gives all `links` these rates at these times."""
    return [
        {"event": "conditions", "planned_s": at, "links": {n: {"rate_mbit": r} for n in links}}
        for at, r in plan
    ]


STATIC = told((0.0, RATE_MBIT))


def collectives(
    folder: Path,
    late_s: float = 0.0,
    rank1_s: float = LENGTH_S,
    sent: int = 4_000_000,
    rank0_s: float = LENGTH_S,
) -> Path:
    """One collective a step and rank; rank 1 enters `late_s` later; each stays its time."""
    table = Table(folder, "collectives.csv")
    table.header()
    for step in range(STEPS):
        begin = step * STEP_S
        table.append(
            Collective(begin, begin + rank0_s, 0, sent, sent),
            Collective(begin + late_s, begin + late_s + rank1_s, 1, sent, sent),
        )
    return folder / "collectives.csv"


def sampled(carried, links=LINKS, every_s=0.25):
    """Rows of links.csv where `carried(time_s)` bytes have passed each link."""
    times = np.arange(0, STEPS * STEP_S + every_s / 2, every_s)
    return {
        n: [{"time_s": repr(float(t)), "bytes": str(round(carried(t)))} for t in times]
        for n in links
    }


def busy(time_s: float, share=1.0) -> float:
    """Bytes, where every collective takes `share` of the rate for its whole length."""
    step, into = divmod(time_s + 1e-9, STEP_S)
    return share * BYTES_S * (step * LENGTH_S + min(into, LENGTH_S))


def reasons(found):
    return validity_checks.of_delivery(found._asdict())


def test_an_exchange_at_the_rate_of_the_plan_delivers_all_of_it(tmp_path):
    found = delivery.judged(collectives(tmp_path), STATIC, sampled(busy), dilation=1.0)
    assert found.communicated_s == pytest.approx(STEPS * LENGTH_S, rel=0.01)
    assert found.delivered == pytest.approx(1.0, abs=0.01)
    assert found.delivered_worst == pytest.approx(1.0, abs=0.01)
    assert found.exceeded == pytest.approx(1.0, abs=0.01)
    assert reasons(found) == []


@pytest.mark.parametrize(("share", "valid"), [(0.96, True), (0.46, False)])
def test_links_that_carry_less_than_their_plan_are_found(tmp_path, share, valid):
    rows = sampled(lambda at: busy(at, share))
    found = delivery.judged(collectives(tmp_path), STATIC, rows, dilation=1.0)
    assert found.delivered == pytest.approx(share, abs=0.01)
    assert (reasons(found) == []) == valid
    assert valid or "delivered 0.46 of their plan" in reasons(found)[0]


def test_one_bad_second_of_many_good_ones_is_found_and_dated(tmp_path):
    def held_up(at):
        return busy(at) - 0.8 * (busy(min(max(at, 10.0), 11.5)) - busy(10.0))

    found = delivery.judged(collectives(tmp_path), STATIC, sampled(held_up), dilation=1.0)
    assert found.delivered > validity_checks.LEAST_DELIVERED
    assert found.delivered_worst < validity_checks.LEAST_DELIVERED_WORST and 9 < found.worst_s < 11
    [reason] = reasons(found)
    assert "worst second of communication, from" in reason


def test_bytes_between_collectives_and_above_the_rate_are_found(tmp_path):
    rows = sampled(busy) | sampled(lambda at: BYTES_S * at, links=("down1",))
    found = delivery.judged(collectives(tmp_path), STATIC, rows, dilation=1.0)
    assert found.exceeded == pytest.approx(STEP_S / LENGTH_S, abs=0.02)
    assert found.exceeded_link == "down1" and "link down1 carried" in reasons(found)[0]


def test_where_a_link_is_slower_than_the_others_it_is_the_measure(tmp_path):
    plan = [*told((0.0, 10 * RATE_MBIT), links=LINKS[1:]), *told((0.0, RATE_MBIT), links=("up0",))]
    found = delivery.judged(collectives(tmp_path), plan, sampled(busy), dilation=1.0)
    assert found.delivered == pytest.approx(1.0, abs=0.01) and reasons(found) == []


def test_ranks_that_wait_for_the_last_do_not_communicate_yet(tmp_path):
    path = collectives(tmp_path, late_s=0.2, rank1_s=0.2)
    rows = sampled(lambda at: busy(at) / 2)  # all of it in the second half of the collective
    found = delivery.judged(path, STATIC, rows, dilation=1.0)
    assert found.communicated_s == pytest.approx(STEPS * 0.2, rel=0.02)
    assert found.delivered == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("sent", "took_s", "valid"), [
    (1000, 0.005, True),  # 0.1 ms of the link; the rest is latency
    (100_000, 0.015, True),  # 10 ms
    (100_000, 0.050, False),  # as at a fifth of the rate
    (10_000, 0.020, False),  # 1 ms, at a twentieth
])  # fmt: skip
def test_short_exchanges_together_may_take_their_plan_and_a_latency(tmp_path, sent, took_s, valid):
    path = collectives(tmp_path, sent=sent, rank0_s=took_s, rank1_s=took_s)
    found = delivery.judged(path, STATIC, sampled(lambda at: 2 * sent * at), 1.0)
    assert found.short_exchanges == STEPS and found.delivered is None
    assert (reasons(found) == []) == valid
    assert valid or "40 short exchanges took " in reasons(found)[0]


def test_short_exchanges_that_are_slow_in_one_second_of_many_are_found(tmp_path):
    table = Table(tmp_path, "collectives.csv")
    table.header()
    for number in range(400):
        begin, took_s = number * 0.1, 0.09 if 200 <= number < 230 else 0.012
        table.append(*(Collective(begin, begin + took_s, n, 100_000, 100_000) for n in range(2)))
    rows = sampled(lambda at: 2e6 * at)
    found = delivery.judged(tmp_path / "collectives.csv", STATIC, rows, dilation=1.0)
    assert found.short_took < 1 and 19 < found.short_worst_s < 23
    [reason] = reasons(found)
    assert "in the second from " in reason


def test_the_time_of_short_exchanges_is_that_of_rates_that_change(tmp_path):
    """Each begins at 80 Mbit/s, which becomes 20 after 5 ms."""
    path = collectives(tmp_path, sent=100_000, rank0_s=0.026, rank1_s=0.026)
    changes = [(step * STEP_S + at, mbit) for step in range(STEPS) for at, mbit in
               ((0.0, RATE_MBIT), (0.005, RATE_MBIT / 4))]  # fmt: skip
    rows = sampled(lambda at: 2e5 * at)
    assert reasons(delivery.judged(path, told(*changes), rows, dilation=1.0)) == []
    assert reasons(delivery.judged(path, STATIC, rows, dilation=1.0)) != []


def test_without_bounds_nothing_is_said(tmp_path):
    path, little = collectives(tmp_path), sampled(lambda at: 0.0)
    found = delivery.judged(path, STATIC, little, dilation=1.0, bounded=(False, False))
    assert reasons(found) == [] and found.delivered is None


def test_too_few_long_exchanges_are_judged_by_their_time(tmp_path):
    path, little = collectives(tmp_path), sampled(lambda at: 0.0)
    found = delivery.judged(path, STATIC, little, dilation=0.01)  # 0.16 real seconds
    assert reasons(found) == [] and found.delivered is None and found.short_took < 1


def test_missing_records_are_no_delivery(tmp_path):
    path, rows = collectives(tmp_path), sampled(busy)
    with pytest.raises(CouldNotCheck, match="no conditions"):
        delivery.judged(path, [], rows, 1.0)
    with pytest.raises(CouldNotCheck, match="fewer than 2 rows of up1"):
        delivery.judged(path, STATIC, rows | {"up1": rows["up1"][:1]}, 1.0)
    with pytest.raises(CouldNotCheck, match="missing"):
        delivery.judged(tmp_path / "no.csv", STATIC, rows, 1.0)


def test_integrals_are_those_of_the_function_on_the_spans():
    rate = StepFunction(np.array([0.0, 1.0, 3.0]), np.array([10.0, 20.0, 5.0]))
    spans = Spans(np.array([0.5, 2.0]), np.array([1.5, 4.0]))
    grid = np.linspace(0, 5, 500_001)
    inside = ((grid >= 0.5) & (grid < 1.5)) | ((grid >= 2) & (grid < 4))
    expected = np.cumsum(rate.values(grid) * inside) * 1e-5
    at = np.array([0.0, 0.7, 1.2, 1.8, 2.5, 3.5, 5.0])
    assert spans.integral(rate, at) == pytest.approx(np.interp(at, grid, expected), abs=1e-3)
