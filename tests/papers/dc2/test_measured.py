"""DC2's numbers beside measured ones."""

import pandas as pd
import pytest

from harness.reporting.claims import published
from papers.dc2 import claims as dc2
from tests.claims.tables import row, table


def sides(rows: list[dict]) -> pd.DataFrame:
    return published.side_by_side(table(*rows))


def test_dc2_numbers_of_the_text():
    speeds = {"allreduce": 1.0, dc2.MODERATE: 2.0, dc2.EXTREME: 10.0, dc2.RANDOM_EXTREME: 1.0}
    speeds |= {method: 4.0 for method in (*dc2.DC2, *dc2.RANDOM_DC2)} | {"dc2_da2": 5.0}
    finals = {dc2.EXTREME: 0.82, "allreduce": 0.9}
    rows = [
        row(
            dc2.VGG16,
            dc2.NO_EF.get(m, m),
            seed,
            time_s=100 / s,
            throughput=s,
            final=finals.get(m, 0.9),
        )
        for m, s in speeds.items()
        for seed in (0, 1)
    ]
    rows += [
        row(dc2.LONG, "fed", density=0.2, compressor="sampled_topk", controller="dc2_da3"),
    ]
    found = sides(rows).set_index(["id", "method", "metric"])
    told = found.loc["dc2_fig4d", "DC2 vs uniform 0.1", "normalized_training_speedup_ratio_max"]
    assert (told.published, told.measured, told.low, told.high) == pytest.approx(
        (2.5, 2.5, 2.5, 2.5)
    )
    told = found.loc["dc2_fig4d", "Top-k-0.001", "accuracy_drop_vs_baseline"]
    assert (told.published, told.measured, told.comparable) == (14.8, pytest.approx(8), False)
    told = found.loc["dc2_fig4e", "ratio 0.001 vs DA2", "throughput_ratio_approx"]
    assert (told.published, told.measured) == (2, 2)
    told = found.loc["dc2_fig9cd", "DA3", "mean_compression_ratio"]
    assert (told.published, told.measured, told.comparable) == (0.145, 0.2, True)
    assert not any(name.startswith("dc2_fig5") for name in found.index.get_level_values(0))
