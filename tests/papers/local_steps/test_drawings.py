"""Figures of local steps from tables of numbers."""

import pandas as pd
import pytest

from harness.reporting.figures import rates
from harness.reporting.figures.theme import NothingToDraw
from papers.local_steps.drawings import DRAWINGS

TO_TARGET = DRAWINGS["local_steps_images-time_to_target"]


def rows(method: str, rate: float, times_s: list[float], reached: bool = True) -> pd.DataFrame:
    return pd.DataFrame({"experiment": "local_steps_images", "method": method,
                         "conditions": [{"profile.rate_mbit": rate} for _ in times_s],
                         "seed": range(len(times_s)), "metric": "accuracy", "target": 0.69,
                         "reached": [True, reached], "time_to_target_s": times_s})  # fmt: skip


def test_time_to_the_target_is_a_mean_of_pairs_that_all_reach_it() -> None:
    table = pd.concat([
        rows("allreduce", 2, [90, 110]),
        rows("allreduce", 8, [30, 34]),
        rows("diloco_h=8", 2, [50, 70]),
        rows("diloco_h=8", 8, [40, 900], reached=False),
    ], ignore_index=True)  # fmt: skip
    (axes,) = TO_TARGET(table).axes
    first = [line for line in axes.get_lines() if line.get_markersize() == rates.FIRST_SIZE]
    places = [place for line in first for place in line.get_xydata().tolist()]
    assert sorted(places) == [[2.0, 60.0], [8.0, 32.0]]


def test_seeds_that_a_method_lacks_are_left_out_and_who_falls_short_is_told() -> None:
    short = rows("diloco_h=8", 2, [50, 900], reached=False)
    table = pd.concat([rows("allreduce", 2, [90, 110]), short], ignore_index=True)
    more = rows("allreduce", 2, [5, 5]).assign(seed=[7, 8])
    figure = TO_TARGET(pd.concat([table, more], ignore_index=True))
    line = figure.axes[0].containers[0].lines[0]
    assert line.get_xydata().tolist() == [[2.0, 100.0]]
    told = [each.get_text() for each in figure.legends[0].get_texts()]
    assert told == ["allreduce", "diloco_h=8: 1 of 2 reach it"]


def test_runs_of_others_are_no_figure() -> None:
    with pytest.raises(NothingToDraw):
        TO_TARGET(rows("allreduce", 2, [1, 2]).assign(experiment="another"))
