"""Regret: the extra time of a method over the oracle, which knows the profile."""

import pandas as pd

from harness.reporting.analysis.load import PAIR
from harness.reporting.analysis.metrics import OF_METHOD

ORACLE = "oracle"  # a controller


def regret(table: pd.DataFrame) -> pd.DataFrame:
    """Return regret, by and bound of each run that has an oracle of its setting and pair of seeds.

    `table` is of `metrics.table`. regret is the time over the oracle's, minus 1: the time to the
    target (`by` is time_to_target_s), or of the whole run without a target or if both missed it
    (`by` is time_s). `bound` is "low" if only the method missed its target and "high" if only the
    oracle did. regret is negative if the method was faster, which is possible because the oracle is
    greedy and weighs progress by volume alone.
    """
    columns = ["setting", "experiment", "method", *OF_METHOD, "density", *PAIR, "run_id"]
    knows = table.controller == ORACLE
    best = table[knows].drop_duplicates(["setting", *PAIR])
    pairs = table[~knows].merge(
        best[["setting", *PAIR, "time_s", "time_to_target_s", "reached"]],
        on=["setting", *PAIR],
        suffixes=("", "_oracle"),
    )
    targeted = pairs.time_to_target_s.notna() & (pairs.reached | pairs.reached_oracle)
    own = pairs.time_to_target_s.where(targeted, pairs.time_s)
    of_oracle = pairs.time_to_target_s_oracle.where(targeted, pairs.time_s_oracle)
    bound = pd.Series("", pairs.index)
    bound = bound.mask(targeted & ~pairs.reached, "low")
    bound = bound.mask(targeted & ~pairs.reached_oracle, "high")
    return pairs[columns].assign(
        regret=own / of_oracle - 1,
        by=pd.Series("time_s", pairs.index).mask(targeted, "time_to_target_s"),
        bound=bound,
    )
