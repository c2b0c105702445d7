"""Progress per second of methods over the oracle's, on steps whose answer is known."""

from pathlib import Path

import pandas as pd
import pytest

from harness.reporting.analysis import load
from harness.reporting.analysis.progress import over_oracle, per_second
from harness.reporting.report import compare
from tests import records_by_hand as by_hand


def made(folder: Path, method: str, density: float, step_s: float, **other) -> None:
    rows = [by_hand.step(n, time_s=step_s * (n + 1), density=density) for n in range(10)]
    by_hand.run(folder / method, by_hand.config(method, **other), rows)


def test_it_is_the_densities_to_a_power_over_the_time_of_settled_steps() -> None:
    rows = [by_hand.step(n, rank, time_s=[5.0, 6.0, 8.0, 10.0][n], density=[1, 1, 0.25, 0.04][n])
            for n in range(4) for rank in range(2)]  # fmt: skip
    assert per_second(pd.DataFrame(rows), 0.5) == pytest.approx((0.5 + 0.2) / 4)
    assert per_second(pd.DataFrame(rows[:4]), 0.5) != per_second(pd.DataFrame(rows[:4]), 0.5)  # nan


def test_methods_of_the_oracle_s_compressor_are_held_against_it(tmp_path: Path) -> None:
    made(tmp_path / "r", "oracle", 0.1, 1.0)
    made(tmp_path / "r", "topk_0.1", 0.1, 2.0)
    made(tmp_path / "r", "topk_0.001", 0.001, 0.9)
    made(tmp_path / "r", "allreduce", 1.0, 0.1)
    found = over_oracle(compare(load.runs(tmp_path / "r"))).set_index("method").progress
    assert found.to_dict() == pytest.approx(
        {"oracle": 1.0, "topk_0.1": 0.5, "topk_0.001": 0.01**0.18 / 0.9}
    )
    assert found.index[0] == "oracle"


def test_without_an_oracle_and_with_one_that_hides_there_is_none(tmp_path: Path) -> None:
    made(tmp_path / "a", "topk_0.1", 0.1, 2.0)
    assert over_oracle(compare(load.runs(tmp_path / "a"))).empty
    hides = by_hand.parts("oracle")["controller"] | {"eps": None}
    made(tmp_path / "b", "oracle", 0.1, 2.0, controller=hides)
    assert over_oracle(compare(load.runs(tmp_path / "b"))).empty
