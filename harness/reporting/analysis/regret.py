"""Regret: what a method loses against the oracle, which knows the profile, in the same run."""

import pandas as pd

from harness.reporting.analysis.load import PAIR
from harness.reporting.analysis.metrics import OF_METHOD

ORACLE = "oracle"  # a controller


def regret(table: pd.DataFrame) -> pd.DataFrame:
    """One row per run with an oracle of its setting and pair: setting, experiment, method, what it
    is made of, seed, network_seed, run_id, regret, by, bound.

    `table` is of `metrics.table`. regret is the extra time over the oracle's: to the target
    (`by` time_to_target_s), or of the whole run where there is no target (`by` time_s). Where
    only the method missed its target it is a lower bound (`bound` low), where only the oracle did
    an upper one (high); where both did, the run's times decide. It is negative where a method was
    faster: the oracle is greedy, and weighs progress by a density's volume alone.
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
