"""ACP-SGD's numbers beside measured ones."""

import pandas as pd
import pytest

from harness.reporting.claims import published
from papers.acp_sgd import trained
from tests.claims.tables import row, table
from tests.papers.acp_sgd.test_replays import TABLE3, of_fig9, of_table3


def sides(rows: list[dict], id: str) -> pd.DataFrame:
    found = published.side_by_side(table(*rows))
    return found[(found.paper == "acpsgd") & (found.id == id)]


def test_steps_of_table_3_come_back_and_what_follows_from_them():
    found = sides(of_table3(), "acp_table3")
    assert len(found) == 8 and found.measured.tolist() == pytest.approx(found.published)
    assert found.comparable.all()
    text = sides(of_table3(), "acp_table3_text").set_index(["model", "method"]).measured
    assert text["BERT-Large", "ACP vs S-SGD"] == pytest.approx(2307 / 245)
    mean = sum(TABLE3["S-SGD"][m] / TABLE3["ACP-SGD"][m] for m in TABLE3["S-SGD"]) / 4
    assert text["mean of 4 models", "ACP vs S-SGD"] == pytest.approx(mean)


def test_what_fusion_gains_is_over_wait_free_backward():
    found = sides(of_fig9(wait_free=80.0, fused=50.0), "acp_fig9").set_index("method").measured
    assert found["ACP TF+WFBP vs WFBP"] == pytest.approx(80.0 / 50.0)


def test_accuracy_of_a_stand_in_is_absolute():
    told = {"model.name": trained.STAND_INS["VGG-16"]}
    found = sides([row(trained.TRAINED, trained.ACP, final=0.93, conditions=told)], "acp_fig6")
    assert found.model.tolist() == ["VGG-16"] and found.measured.tolist() == pytest.approx([93])
    assert not found.comparable.any()
