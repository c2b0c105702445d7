"""DCT's numbers beside measured ones, and the regime of its production model."""

import pytest
import torch

from tests.claims.tables import sides
from tests.papers.dct.test_claims import as_published
from tests.papers.dct.test_production import OF as production_steps
from tests.papers.dct.test_production import runs as production_runs
from tests.test_settings import settings


def test_dct_qualities_come_back_by_workers_with_those_over_the_uncompressed_one():
    found = sides([each | {"scale": "paper"} for each in as_published()])
    found = found[(found.paper == "dct") & found.id.str.startswith("dct_table")]
    assert found.measured.tolist() == pytest.approx(found.published, rel=1e-4)
    assert found.comparable.all() and {len(runs) for runs in found.runs} == {3, 6}
    told = found.set_index(["id", "method", "metric"]).published
    assert told["dct_table1", "DCT-MP sparsity=95%, 3 workers", "test_loss"] == 0.4546
    over = told["dct_table1", "DCT-MP sparsity=95%, 3 workers", "test_loss over uncompressed"]
    assert over == pytest.approx(1.0018, abs=1e-4)
    assert told["dct_table4", "DCT-MP sparsity=90%, 5 workers", "bleu"] == 35.20
    assert len(found[found.id == "dct_table6"]) == 9  # of which the baseline is table 1's


def test_dct_losses_of_a_stand_in_are_not_comparable_their_changes_are():
    found = sides(as_published())
    found = found[found.id == "dct_table8"]
    kinds = found.groupby("metric").comparable.agg(set).to_dict()
    assert kinds == {"test_loss": {False}, "test_loss over uncompressed": {True}}
    assert found.note.str.contains("model of 3 stages, published with 2 workers").any()


def test_dct_percentages_of_time_and_loss():
    rows = [each for name in production_steps for each in production_runs(name)]
    rows += as_published()
    found = sides(rows).set_index(["id", "method", "metric"]).measured
    by_l = found.loc["dct_fig8a"].droplevel("metric")
    assert by_l.tolist() == pytest.approx([11, 23, 0])
    gains = found.loc["dct_table5"].xs("time_gain", level="metric")
    assert gains.tolist() == pytest.approx([7, 13.95, 14.43])
    assert found["dct_abstract", "DCT", "training_time_reduction_max"] == pytest.approx(37.1)
    assert found["dct_abstract", "DCT", "communication_reduction_max"] == pytest.approx(1 / 0.066)
    increases = found.xs("test_loss_increase", level="metric")
    assert increases.tolist() == pytest.approx([0.18, 0.20, 0.22], abs=0.01)


CARD_MBIT, BATCHES = 12_500, (100, 1000)
MULTIPLY_ADDS_PER_S = 31e9  # of a core of 2 GHz: benchmarks/core.py


@pytest.mark.parametrize("experiment", ["dct_fig8a", "dct_fig8c"])
def test_links_and_steps_follow_from_what_the_paper_tells(experiment):
    found = settings(f"+experiment={experiment}", "scale=laptop")
    model, data = found.build("model"), found.build("dataset")
    with torch.device("meta"):
        own = sum(each.numel() for each in model.build(data.shape, data.classes).parameters())
    original = model.original
    weights = sum(original.sizes.values())
    trainers, server = found["profile.rate_mbit"][:-1], found["profile.rate_mbit"][-1]
    assert trainers == pytest.approx([CARD_MBIT * own / weights] * found["workers"], rel=1e-3)
    assert server == pytest.approx(sum(trainers))
    assert original.batch_size == pytest.approx((BATCHES[0] * BATCHES[1]) ** 0.5, rel=1e-3)
    times = model.times.at(found["batch_size"])
    forward_s = original.batch_size * weights / MULTIPLY_ADDS_PER_S
    assert (times.forward_s, times.backward_s) == pytest.approx(
        (forward_s, 2 * forward_s), rel=3e-3
    )


def test_trainers_are_asynchronous_threads_with_drains():
    found = settings("+experiment=dct_fig8a", "scale=laptop", "method=dct_hogwild").run()
    layout = found.server
    assert (layout.mode, layout.threads) == ("async", 18)
    assert layout.drain_period == found.steps and found.error_feedback
