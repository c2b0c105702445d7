"""timeline.csv: one thing at a time on each lane, and the same times as steps.csv."""

import pandas as pd
import pytest

from harness.reporting.analysis import load
from tests.virtual.runs import simulated

ASKED = ("steps=6", "workers=3", "bucket_mb=0.02", "emulation.compute=replay", "batch_size=16")
GIVEN = ("+network.device.costs.other.element_ns=200", "profile.rate_mbit=40")


@pytest.fixture(scope="module", params=["per_bucket", "after_backward"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("timeline") / request.param
    method = ("method=powersgd", f"overlap={request.param}")
    return simulated(folder, *ASKED, *GIVEN, *method, "network.timeline_steps=2")


@pytest.fixture
def of_a_step(run):
    """The rows of each step and rank, beside that of steps.csv."""
    steps = load.steps(run).set_index(["step", "rank"])
    groups = load.timeline(run).groupby(["step", "rank"])
    return [(rows, steps.loc[key]) for key, rows in groups]


def test_the_last_steps_of_every_rank_are_there(run):
    spans = load.timeline(run)
    assert set(spans.step) == {4, 5} and set(spans["rank"]) == {0, 1, 2}
    assert (spans.end_s > spans.start_s).all()
    assert spans.groupby("kind").bucket.max().to_dict() == {
        "forward": -1, "backward": spans.bucket.max(), "communicate": spans.bucket.max(),
        "compress": spans.bucket.max(),
    }  # fmt: skip


def test_a_lane_does_one_thing_at_a_time_in_the_order_of_buckets(of_a_step):
    for rows, _ in of_a_step:
        for lane in (("forward", "backward", "compress"), ("communicate",)):
            spans = rows[rows.kind.isin(lane)].sort_values(["start_s", "end_s"])
            assert (spans.start_s.iloc[1:].to_numpy() >= spans.end_s.iloc[:-1] - 1e-12).all()
        for kinds in (("forward", "backward"), ("compress", "communicate")):
            spans = rows[rows.kind.isin(kinds)].sort_values(["start_s", "end_s"])
            assert spans.bucket.is_monotonic_increasing


def test_no_bucket_is_compressed_or_sent_before_it_is_ready(of_a_step):
    for rows, _ in of_a_step:
        ready_s = rows[rows.kind == "backward"].set_index("bucket").end_s
        for kind in ("compress", "communicate"):
            began_s = rows[rows.kind == kind].groupby("bucket").start_s.min()
            assert (began_s >= ready_s - 1e-12).all() and len(began_s) == len(ready_s)


def test_its_sums_are_those_of_the_step(run, of_a_step):
    exposed = []
    for rows, step in of_a_step:
        took_s = (rows.end_s - rows.start_s).groupby(rows.kind).sum()
        assert took_s["communicate"] == pytest.approx(step.comm_s)
        assert took_s["compress"] == pytest.approx(step.compress_s)
        assert took_s["forward"] + took_s["backward"] == pytest.approx(step.compute_s)
        assert rows.end_s.max() == pytest.approx(step.time_s)
        began_s = rows.start_s[rows.kind == "forward"].item()
        computed_s = rows.end_s[rows.kind == "backward"].max()
        busy_s = took_s["forward"] + took_s["backward"] + took_s["compress"]
        assert rows.end_s.max() - began_s == pytest.approx(busy_s + step.exposed_s)
        first_s = rows.end_s[(rows.kind == "backward") & (rows.bucket == 0)].item()
        late = run.name == "after_backward"
        assert step.compute_before_first_bucket_s == pytest.approx(
            (computed_s if late else first_s) - began_s
        )
        exposed.append(step.exposed_s)
    assert min(exposed) > 0


def test_without_steps_to_tell_there_is_no_timeline(tmp_path):
    run = simulated(tmp_path / "run", *ASKED, *GIVEN, "network.timeline_steps=0")
    assert not (run / "timeline.csv").exists() and load.timeline(run).empty


def test_one_collective_and_a_product_less_make_steps_shorter(tmp_path):
    """What ACP-SGD's figure 4 shows, on a smaller model."""
    experiment = ("+experiment=acp_fig4", "model=resnet20", "dataset=cifar10", "bucket_mb=0.1")
    times = ("model.times.batch_size=64", "model.times.forward_s=0.02", "steps=4")
    ends = []
    for method in ("powersgd_packed", "powersgd", "acp_sgd"):
        asked = (*experiment, *times, "model.times.backward_s=0.04", *f"method={method}".split())
        run = simulated(tmp_path / method, *asked)
        ends.append(pd.read_csv(run / "steps.csv").time_s.max())
    assert ends[0] > 1.1 * ends[2] and ends[1] > 1.1 * ends[2]
