"""The lanes of a step: schedules that were worked out by hand, and what holds of any."""

import random
from itertools import pairwise

import pandas as pd
import pytest

from harness.config.lanes import Lanes
from harness.engine.exchange.bucket_lanes import in_turn
from harness.engine.exchange.stats import Clocks, merged, overlap_s
from harness.reporting.analysis import load
from harness.virtual.lanes import LaneOp, Layout, Work
from profiles.static import Static
from tests.virtual.runs import simulated
from tests.virtual.threads import costs_of

WORKERS = 2
ONE_S = (("all_reduce", 1_000_000, WORKERS),)  # between two workers, at 1 MB/s
BUCKET = [LaneOp(0.5), LaneOp(0.0, ONE_S), LaneOp(0.25)]
TWICE = [LaneOp(0.5), LaneOp(0.0, ONE_S), LaneOp(0.25), LaneOp(0.0, ONE_S), LaneOp(0.25)]


def laid_out(
    buckets: list[list[LaneOp]], lanes: Lanes, after: bool = False, opening: tuple[LaneOp, ...] = ()
) -> Clocks:
    """Of two workers that do the same: a second of forward and one of backward for each bucket."""
    costs = costs_of(Static(rate_mbit=8.0), WORKERS)
    work = Work(10.0, 1.0, [1.0] * len(buckets), list(opening), buckets)
    first, second = Layout([work] * WORKERS, costs, lanes, after).workers()
    assert first.done == second.done
    return first


def spans(worker: Clocks, kind: str) -> list[tuple[float, float]]:
    return [(one.start_s - 10, one.end_s - 10) for one in worker.done if one.kind == kind]


WAITS, FREE = Lanes(waits=True), Lanes()
OWN_WAITS, OWN = Lanes(on_device=False, waits=True), Lanes(on_device=False)


@pytest.mark.parametrize(
    ("lanes", "backward", "compress", "sent", "end_s", "exposed_s"),
    [
        (WAITS, [(1, 2), (3.75, 4.75)], [(2, 2.5), (3.5, 3.75), (4.75, 5.25), (6.25, 6.5)],
         [(2.5, 3.5), (5.25, 6.25)], 6.5, 2.0),
        (FREE, [(1, 2), (2.5, 3.5)], [(2, 2.5), (3.5, 4), (4, 4.25), (5, 5.25)],
         [(2.5, 3.5), (4, 5)], 5.25, 0.75),
        (OWN_WAITS, [(1, 2), (2, 3)], [(2, 2.5), (3.5, 3.75), (3.75, 4.25), (5.25, 5.5)],
         [(2.5, 3.5), (4.25, 5.25)], 5.5, 1.5),
        (OWN, [(1, 2), (2, 3)], [(2, 2.5), (3, 3.5), (3.5, 3.75), (4.5, 4.75)],
         [(2.5, 3.5), (3.5, 4.5)], 4.75, 0.75),
    ],
)  # fmt: skip
def test_two_buckets_of_one_collective_are_laid_out_as_by_hand(
    lanes, backward, compress, sent, end_s, exposed_s
):
    worker = laid_out([BUCKET, BUCKET], lanes)
    assert spans(worker, "forward") == [(0, 1)]
    assert spans(worker, "backward") == backward
    assert spans(worker, "compress") == compress
    assert spans(worker, "communicate") == sent
    assert worker.end_s == 10 + end_s and worker.totals().exposed_s == exposed_s


@pytest.mark.parametrize(("lanes", "sent"), [
    (WAITS, [(2.5, 3.5), (3.75, 4.75), (6.5, 7.5), (7.75, 8.75)]),
    # A bucket that was come back to is finished before the next.
    (FREE, [(2.5, 3.5), (4, 5), (5, 6), (6.5, 7.5)]),
    (OWN, [(2.5, 3.5), (3.5, 4.5), (4.5, 5.5), (6, 7)]),
])  # fmt: skip
def test_a_second_collective_comes_when_its_turn_does(lanes, sent):
    worker = laid_out([TWICE, TWICE], lanes)
    assert spans(worker, "communicate") == sent


def test_after_backward_nothing_is_between_its_parts():
    for lanes in (WAITS, FREE, OWN):
        worker = laid_out([BUCKET, BUCKET], lanes, after=True)
        assert spans(worker, "backward") == [(1, 2), (2, 3)]
        assert spans(worker, "compress")[0] == (3, 3.5)
    assert laid_out([BUCKET, BUCKET], WAITS, after=True).end_s == 16.5
    assert laid_out([BUCKET, BUCKET], FREE, after=True).end_s == 15.75


def test_interference_is_of_compression_between_parts_of_backward():
    worker = laid_out([BUCKET, BUCKET], Lanes(interference=1.5))
    assert spans(worker, "compress") == [(2, 2.75), (3.75, 4.25), (4.25, 4.5), (5.25, 5.5)]
    after = laid_out([BUCKET, BUCKET], Lanes(interference=1.5), after=True)
    assert after.end_s == laid_out([BUCKET, BUCKET], FREE, after=True).end_s


def test_nothing_is_compressed_before_the_density_is_agreed_on():
    opening = (LaneOp(0.0, (("all_reduce", 2_500_000, WORKERS),)),)
    worker = laid_out([BUCKET], FREE, opening=opening)
    assert spans(worker, "communicate")[0] == pytest.approx((0, 2.5))
    assert spans(worker, "compress")[0] == pytest.approx((2.5, 3))
    assert worker.durations_s == pytest.approx([1.0])


def random_work(source: random.Random, calls: list[int], begin_s: float) -> Work:
    buckets = []
    for count in calls:
        ops = [LaneOp(source.random())]
        for _ in range(count):
            ops += [LaneOp(0.0, ONE_S), LaneOp(source.random())]
        buckets.append(ops)
    return Work(begin_s, source.random(), [source.random() for _ in calls], [], buckets)


@pytest.mark.parametrize("lanes", [WAITS, FREE, OWN_WAITS, OWN, Lanes(interference=2.0)])
@pytest.mark.parametrize("after", [False, True])
def test_on_all_workers_the_wire_has_one_order_whatever_their_timing(lanes, after):
    source = random.Random(f"{lanes}{after}")
    for _ in range(50):
        calls = [source.randrange(4) for _ in range(source.randrange(1, 6))]
        works = [random_work(source, calls, source.random()) for _ in range(WORKERS)]
        costs = costs_of(Static(rate_mbit=8.0), WORKERS)
        workers = Layout(works, costs, lanes, after).workers()
        orders = [[one.bucket for one in w.done if one.kind == "communicate"] for w in workers]
        assert orders[0] == orders[1] and len(orders[0]) == sum(calls)
        for worker in workers:
            keeps_its_lanes(worker)
        for together in zip(*(spans(worker, "communicate") for worker in workers), strict=True):
            assert max(s for s, _ in together) <= min(e for _, e in together)


def keeps_its_lanes(worker: Clocks) -> None:
    """One thing at a time; and on a device, no time is left unexplained."""
    sent = [(one.start_s, one.end_s) for one in worker.done if one.kind == "communicate"]
    compressed = [(one.start_s, one.end_s) for one in worker.done if one.kind == "compress"]
    computed = [(o.start_s, o.end_s) for o in worker.done if o.kind in ("forward", "backward")]
    on_device = (
        [sorted(computed + compressed)] if worker.lanes.on_device else [computed, compressed]
    )
    for lane in [sent, *on_device]:
        assert all(one[1] <= other[0] for one, other in pairwise(lane))
    if worker.lanes.on_device:
        busy_s = sum(end_s - start_s for start_s, end_s in computed + compressed)
        took_s = worker.end_s - worker.begin_s
        assert took_s == pytest.approx(busy_s + worker.totals().exposed_s)


def test_the_order_of_turns_is_that_of_the_program():
    def told(ahead: int) -> str:
        return " ".join(f"{'+' if t.starts else '-'}{t.bucket}" for t in in_turn("abc", ahead))

    assert told(0) == "+a -a +b -b +c -c"
    assert told(1) == "+a +b -a +c -b -c"
    assert told(9) == "+a +b +c -a -b -c"


def test_overlap_is_what_is_in_both():
    source = random.Random(0)
    for _ in range(100):
        times = sorted(source.sample(range(60), 12))
        ones = list(zip(times[::2], times[1::2], strict=True))
        others = [(start, start + source.randrange(9)) for start in source.sample(range(60), 6)]
        instants = set().union(*(range(*one) for one in ones))
        both = instants & set().union(*(range(*other) for other in others))
        assert overlap_s(ones, merged(others)) == len(both)


ASKED = ("model=convnet", "dataset=digits", "steps=3", "workers=3", "bucket_mb=0.02")
COVAP = "topk compressor=covap controller.density=0.25"
KNOWN = ("emulation.compute=replay", "batch_size=16", "profile.rate_mbit=40", "steps=3")


@pytest.mark.parametrize("method", ["allreduce", "topk controller.density=0.1", COVAP, "acp_sgd"])
@pytest.mark.parametrize("where", ["device", "own"])
def test_a_replays_steps_are_those_of_a_short_recurrence(tmp_path, method, where):
    given = (
        "+network.device.costs.other.element_ns=300",
        *f"method={method}".split(),
        f"emulation.compression={where}",
    )
    run = simulated(tmp_path / "run", *ASKED, *KNOWN, *given)
    for _, rows in load.timeline(run).groupby(["step", "rank"]):
        assert rows.end_s.max() == pytest.approx(recurrence(rows, where))


def recurrence(rows: pd.DataFrame, where: str) -> float:
    """When a step of a scheme of one collective ends: by what each part of it took."""
    groups = rows.assign(took_s=rows.end_s - rows.start_s).groupby(["kind", "bucket"]).took_s
    took, first = groups.sum().to_dict(), groups.first().to_dict()
    device_s = aside_s = wire_s = rows.start_s.min() + took["forward", -1]
    count, sent_s = 1 + rows.bucket.max(), []
    encode_s = [first["compress", bucket] for bucket in range(count)]
    decode_s = [took["compress", bucket] - encode_s[bucket] for bucket in range(count)]
    for bucket in range(count):
        device_s += took["backward", bucket]
        if where == "device":
            aside_s = device_s = device_s + encode_s[bucket]
        else:  # which comes back to a bucket when it has started the next
            if bucket > 1:
                aside_s = max(aside_s, sent_s[bucket - 2]) + decode_s[bucket - 2]
            aside_s = max(aside_s, device_s) + encode_s[bucket]
        wire_s = max(wire_s, aside_s) + took.get(("communicate", bucket), 0.0)
        sent_s.append(wire_s)
    for bucket in range(0 if where == "device" else max(0, count - 2), count):
        aside_s = max(aside_s, sent_s[bucket]) + decode_s[bucket]
    return max(aside_s, device_s)


def test_compression_on_the_device_delays_backward_and_overlap_loses(tmp_path):
    """COVAP's figure 1e: less traffic, all of it hidden, and a longer step than dense."""
    ends = {}
    for where in ("device", "own"):
        for method, cost_ns in (("allreduce", 0), ("topk", 400), (COVAP, 0)):
            cost = f"+network.device.costs.other.element_ns={cost_ns}"
            given = (cost, *f"method={method}".split())
            asked = (*ASKED, *KNOWN, *given, f"emulation.compression={where}")
            run = simulated(tmp_path / where / method, *asked, "profile.rate_mbit=400")
            ends[where, method] = pd.read_csv(run / "steps.csv").time_s.max()
            [told] = pd.read_csv(run / "steps.csv").groupby(lambda row: 0)
            steps = told[1]
            if where == "device":
                parts_s = steps.compute_s + steps.compress_s + steps.exposed_s
                ended_s = steps.groupby("rank").time_s
                took_s = ended_s.diff().fillna(steps.time_s)
                assert parts_s.to_numpy() == pytest.approx(took_s.to_numpy())
    assert ends["device", "topk"] > ends["device", "allreduce"] > ends["device", COVAP]
    assert ends["own", "topk"] < ends["device", "topk"]
