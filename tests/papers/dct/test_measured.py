"""DCT's numbers beside measured ones."""

import pandas as pd
import pytest

from harness.reporting.claims import published
from tests.claims.tables import table
from tests.papers.dct.test_claims import as_published
from tests.papers.dct.test_production import OF as production_steps
from tests.papers.dct.test_production import runs as production_runs


def sides(rows: list[dict]) -> pd.DataFrame:
    return published.side_by_side(table(*rows))


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
