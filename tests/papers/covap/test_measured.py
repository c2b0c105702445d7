"""COVAP's numbers beside measured ones."""

import pandas as pd
import pytest

from harness.reporting.claims import published
from papers.covap import replays, trained
from tests.claims.tables import row, table
from tests.papers.covap.test_replays import BACKWARD_S, CCR, COMPUTE_S, of_fig7, of_table1, ran


def sides(rows: list[dict], id: str) -> pd.DataFrame:
    found = published.side_by_side(table(*rows))
    return found[(found.paper == "covap") & (found.id == id)]


def test_times_of_table_1_and_what_follows_from_them():
    found = sides(of_table1({"vgg19": 1.25}), "covap_table1").set_index("metric").measured
    assert found["T_comp"] == pytest.approx(1e3 * BACKWARD_S)
    assert found["T_before"] == pytest.approx(1e3 * (COMPUTE_S - BACKWARD_S))
    assert found["T_comm"] == pytest.approx(1e3 * CCR["vgg19"] * BACKWARD_S)
    assert found["S_ovlp"] == pytest.approx(1.25)


def test_speed_ups_of_table_7_are_64_times_the_share_of_linear():
    found = sides(of_fig7(covap_s=0.32), "covap_table7")
    assert set(found.metric) == {"speedup_vs_1gpu"} and found.comparable.all()
    ours = found[found.method == "COVAP"]
    assert len(ours) == 2 and ours.measured.tolist() == pytest.approx([64 * COMPUTE_S / 0.32] * 2)


def test_what_is_missing_of_linear_is_told_in_percent():
    rows = [
        ran("covap_fig11", "resnet101", method, step_s)
        for method, step_s in ((replays.covap_of("resnet101"), 0.3), (replays.POWER, 0.4))
    ]
    found = sides(rows, "covap_fig11a").set_index("method").measured
    assert found["COVAP"] == pytest.approx(0) and found["PowerSGD"] == pytest.approx(25)


def test_accuracy_of_a_stand_in_is_absolute():
    told = {"model.name": trained.STAND_INS["ResNet-101"]}
    found = sides([row(trained.TRAINED, trained.COVAP, final=0.5, conditions=told)], "covap_table7")
    assert found.method.tolist() == ["COVAP"] and found.measured.tolist() == pytest.approx([50])
    assert not found.comparable.any()
