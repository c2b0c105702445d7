"""Regret against the oracle, on rows whose answer is known."""

import pandas as pd
import pytest

from harness.reporting.analysis.regret import regret
from tests.claims.tables import row


def runs(method: str, seed: int = 0, **known) -> dict:
    return row("by_hand", method, seed, **known)


def found(*rows: dict) -> pd.DataFrame:
    return regret(pd.DataFrame(rows)).set_index(["method", "seed"])


def test_it_is_the_extra_time_to_the_target_of_the_same_seed():
    table = found(runs("oracle", 0, time_to_target_s=50.0),
                  runs("oracle", 1, time_to_target_s=100.0), runs("pace", 0, time_to_target_s=60.0),
                  runs("pace", 1, time_to_target_s=110.0), runs("pace", 2),
                  row("elsewhere", "pace"))  # fmt: skip
    assert table.regret.tolist() == pytest.approx([0.2, 0.1])
    assert set(table.by) == {"time_to_target_s"} and set(table.bound) == {""}


def test_without_a_target_the_whole_time_counts():
    none = {"time_to_target_s": float("nan"), "reached": False}
    table = found(runs("oracle", time_s=80.0, **none), runs("pace", time_s=100.0, **none))
    assert table.regret["pace", 0] == pytest.approx(0.25) and table.by["pace", 0] == "time_s"


@pytest.mark.parametrize(("own", "oracle", "by", "bound", "expected"), [
    (False, True, "time_to_target_s", "low", 1.0),
    (True, False, "time_to_target_s", "high", 1.0),
    (False, False, "time_s", "", 0.5),
])  # fmt: skip
def test_a_missed_target_makes_a_bound(own, oracle, by, bound, expected):
    table = found(
        runs("oracle", time_s=100.0, time_to_target_s=40.0, reached=oracle),
        runs("pace", time_s=150.0, time_to_target_s=80.0, reached=own),
    )
    assert tuple(table.loc[("pace", 0), ["by", "bound"]]) == (by, bound)
    assert table.regret["pace", 0] == pytest.approx(expected)


def test_without_an_oracle_there_is_none():
    assert found(runs("pace")).empty
