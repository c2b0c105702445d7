"""Decide DCT's claims (Gupta et al., 2021), in the order of its tables and figures.

The paper's 2 and 3 workers are stages of a model, as here. Sparsity is 1 - density. Loss
differences are near the scatter of seeds, so `changes` defines what decides. Figures 2, 5 and 6 are
in `thresholds`, the production model in `production`. The list of claims is at the end.
"""

from collections.abc import Sequence

import pandas as pd

from harness.reporting.claims.base import Found, NoSuchRuns, PaperClaims, Runs, listed
from harness.reporting.claims.changes import (
    TRAIN_LOSS,
    MethodPair,
    Pairs,
    all_are,
    better,
    ended,
    not_better,
    not_worse,
    same,
    worse,
)
from harness.reporting.claims.guards import Controls
from papers.dct import production, thresholds
from papers.dct.thresholds import sparse

COIN = 0.693  # cross-entropy of a model that predicts even odds
TABLE1, TABLE2, TABLE3, TABLE4 = "dct_table1", "dct_table2", "dct_table3", "dct_table4"
TABLE6, TABLE7, TABLE8 = "dct_table6", "dct_table7", "dct_table8"
CUT, LAPLACE, SKETCH = "dct_mp_{0:g}", "dct_mp_laplace_{0:g}", "sketch_{0:g}"
PUSHED = thresholds.PUSHED
BOTH = PUSHED + "+" + CUT
GRADIENT, NO_FEEDBACK = "topk_grad_{0:g}", "topk_grad_no_ef_{0:g}"
IN_BOTH = (0.25, 0.1)  # densities of tables 7 and 8 that table 1 has too
# Negative control of clicks and of translation. Top-k of the gradient without feedback is none, as
# table 8 claims that it loses.
CONTROLS, IN_WORDS = "dct_controls", "dct_controls_translation"
LOSING = (SKETCH.format(0.1),)
TRANSLATIONS = [(stages, density) for stages in (2, 3, 5) for density in (0.1, 0.05)]


def of_table(
    experiment: str, scheme: str, densities: Sequence[float], stages: int = 1, base: str = ""
) -> Pairs:
    """Return a function that pairs each density of `scheme` with `base`, or with its density 1."""

    def pairs(runs: Runs) -> list[MethodPair]:
        group = runs.of(experiment, **_cut(stages))
        rival = base or scheme.format(1)
        return [MethodPair(sparse(d), group, scheme.format(d), rival) for d in densities]

    return pairs


def of_table_1(
    experiment: str, scheme: str, densities: Sequence[float], stages: int, base: float | None = None
) -> Pairs:
    """Return a function that pairs each density with table 1's DCT-MP of `base` or that density."""

    def pairs(runs: Runs) -> list[MethodPair]:
        group = runs.of(experiment, TABLE1, **_cut(stages))
        return [
            MethodPair(sparse(d), group, scheme.format(d), CUT.format(base or d)) for d in densities
        ]

    return pairs


def _cut(stages: int) -> dict[str, int]:
    return {"parallel__stages": stages} if stages > 1 else {}


def of_translation(cells: Sequence[tuple[int, float]], base: float = 1) -> Pairs:
    """Return a function that pairs each (stages, density) with density `base`, in BLEU."""

    def pairs(runs: Runs) -> list[MethodPair]:
        found = []
        for stages, density in cells:
            group, label = runs.of(TABLE4, **_cut(stages)), f"{stages} workers {sparse(density)}"
            found.append(MethodPair(label, group, CUT.format(density), CUT.format(base), "bleu"))
        return found

    return pairs


def diverges(runs: Runs) -> Found:
    """Decide whether every run without error feedback breaks: not finite, or a loss of `COIN`."""
    rows = runs.of(TABLE8).rows()
    found = {sparse(d): _broken(rows, NO_FEEDBACK.format(d)) for d in (0.5, *IN_BOTH)}
    told = ", ".join(f"{broken} of {seeds} at {label}" for label, (broken, seeds) in found.items())
    holds = all(broken == seeds for broken, seeds in found.values())
    return Found(holds, f"runs that broke: {told}", f"losses {_losses(rows)}")


def _broken(rows: pd.DataFrame, method: str) -> tuple[int, int]:
    """Count broken and all runs of `method`; raise `NoSuchRuns` without any."""
    whole = rows[rows.method == method]
    if whole.empty:
        raise NoSuchRuns(f"no runs of {method} in {TABLE8}")
    return int((ended(whole, "loss") >= COIN).sum()), len(whole)


def _losses(rows: pd.DataFrame) -> str:
    means = ended(rows, "loss").groupby(rows.method).mean()
    return listed(dict(zip(map(str, means.index), means, strict=True)))


PAPER = PaperClaims(
    "dct",
    workers=1,
    controls=[
        *(Controls("dlrm", dataset, CONTROLS, LOSING) for dataset in ("clicks", "criteo")),
        Controls("transformer_small", "catalogues", IN_WORDS, LOSING),
        Controls("transformer_iwslt", "iwslt14_de_en", IN_WORDS, LOSING),
    ],
)
PAPER.says(
    "dct_fig2",
    "a gradient's threshold grows with sparsity",
    thresholds.grows_with_sparsity,
)
PAPER.says(
    "dct_fig2",
    "at 95 % it varies little: 26 % at most off its running mean",
    thresholds.varies_little,
)
PAPER.says(
    "dct_table1",
    "DCT-MP, 2 workers: 75 to 95 % sparse, the test loss is better than uncompressed",
    all_are(better, of_table(TABLE1, CUT, (0.25, 0.1, 0.05), stages=2)),
)
PAPER.says(
    "dct_table1",
    "DCT-MP, 2 workers: 98 % sparse, it is worse",
    all_are(worse, of_table(TABLE1, CUT, (0.02,), stages=2)),
)
PAPER.says(
    "dct_table1",
    "DCT-MP, 3 workers: 75 and 90 % sparse, it is no worse",
    all_are(not_worse, of_table(TABLE1, CUT, (0.25, 0.1), stages=3)),
)
PAPER.says(
    "dct_table1",
    "DCT-MP, 3 workers: 95 % sparse, it is worse (0.18 %)",
    all_are(worse, of_table(TABLE1, CUT, (0.05,), stages=3)),
)
PAPER.says(
    "dct_table1",
    "DCT-MP, 4 workers: it is worse even at 75 %",
    all_are(worse, of_table(TABLE1, CUT, (0.25,), stages=4)),
)
PAPER.says(
    "dct_table2",
    "DCT-DP: 75 to 98 % sparse, the test loss is no worse",
    all_are(not_worse, of_table(TABLE2, PUSHED, (0.25, 0.1, 0.05, 0.02))),
)
PAPER.says(
    "dct_table2",
    "DCT-DP: 99.5 % sparse, it is worse (0.20 %)",
    all_are(worse, of_table(TABLE2, PUSHED, (0.005,))),
)
PAPER.says(
    "dct_table3",
    "DCT-DP and DCT-MP, 3 workers: 75 and 90 % sparse, the test loss is no worse",
    all_are(not_worse, of_table(TABLE3, BOTH, (0.25, 0.1), stages=3)),
)
PAPER.says(
    "dct_table3",
    "DCT-DP and DCT-MP, 3 workers: 95 % sparse, it is worse (0.22 %)",
    all_are(worse, of_table(TABLE3, BOTH, (0.05,), stages=3)),
)
PAPER.says(
    "dct_table4",
    "translation: BLEU is no lower than uncompressed, but for 5 workers at 95 %",
    all_are(not_worse, of_translation(TRANSLATIONS[:-1])),
)
PAPER.says(
    "dct_table4",
    "translation: with 5 workers at 95 % it is no higher (35.15, uncompressed 35.17)",
    all_are(not_better, of_translation(TRANSLATIONS[-1:])),
)
PAPER.says(
    "dct_table4",
    "translation: 90 % has the best BLEU for every number of workers",
    all_are(better, of_translation([(stages, 0.1) for stages in (2, 3, 5)], base=0.05)),
)
PAPER.says(
    "dct_fig8a",
    "DCT-DP, 95 % sparse: a threshold in every step (L = 1) makes it slower (11 %)",
    production.takes(production.LIFESPAN, production.L1, 1.11),
    cells=[{"id": "dct_fig8a", "metric": "time_increase"}],
)
PAPER.says(
    "dct_fig8a",
    "L = 1000 makes it faster (23 %)",
    production.takes(production.LIFESPAN, production.L1000, 0.77),
    cells=[{"id": "dct_fig8a", "metric": "time_reduction"}],
)
PAPER.says(
    "dct_fig8a",
    "L = 10000 gains no more",
    production.no_more_at_10000,
    cells=[{"id": "dct_fig8a", "metric": "extra_gain_over_L1000"}],
)
PAPER.says(
    "dct_fig8a",
    "found by partition instead of a sort, thresholds make L matter less than half as much",
    production.little_without_sorts,
    ours=True,
)
PAPER.says(
    "dct_fig8b",
    "DCT-DP, 95 % sparse: the test loss is the same for every L (0.01 %)",
    all_are(same, production.of_dense(production.LIFESPAN, production.LIFESPANS)),
)
PAPER.says(
    "dct_fig8b",
    "DCT-DP, 95 % sparse: the train loss is the same for every L (0.01 %)",
    all_are(same, production.of_dense(production.LIFESPAN, production.LIFESPANS, TRAIN_LOSS)),
)
PAPER.says("dct_fig8c", "DCT-DP: the gain in time grows up to 95 %", production.grows_with_sparsity)
PAPER.says("dct_fig8c", "DCT-DP: beyond 95 % it is flat", production.flat_beyond_95)
PAPER.says(
    "dct_fig8d",
    "DCT-DP: 75 to 99.5 % sparse, L = 1000, the test loss is no worse",
    all_are(not_worse, production.of_sparsities(production.ASKED)),
)
PAPER.says(
    "dct_table5",
    "DCT-MP, 12 cuts: 75 and 90 % sparse, the test loss is better",
    all_are(better, production.of_dense(production.ACTIVATIONS, production.UP_TO_90)),
)
PAPER.says(
    "dct_table5",
    "DCT-MP, 12 cuts: 95 % sparse, the test loss is worse (0.121 %)",
    all_are(worse, production.of_dense(production.ACTIVATIONS, {"95 %": production.CUT_95})),
)
PAPER.says(
    "dct_table5",
    "DCT-MP, 12 cuts: 90 % sparse takes less time (14 %)",
    production.takes(production.ACTIVATIONS, production.CUT_90, 0.8605, **production.PIPELINE),
)
PAPER.says(
    "dct_table5",
    "DCT-MP, 12 cuts: 95 % gains little more",
    production.no_more(
        production.ACTIVATIONS, production.CUT_95, production.CUT_90, **production.PIPELINE
    ),
)
PAPER.says(
    "dct_hybrid_prod",
    "DCT-MP at 90 % and DCT-DP at 99 % take less time (37.1 %)",
    production.takes(production.HYBRID, production.TOGETHER, 0.629, **production.PIPELINE),
)
PAPER.says(
    "dct_hybrid_prod",
    "DCT-MP at 90 % and DCT-DP at 99 %: the test loss is the same (0.01 %)",
    all_are(same, production.of_dense(production.HYBRID, {"both": production.TOGETHER})),
)
PAPER.says(
    "dct_hybrid_prod",
    "together they gain more than either alone",
    production.more_than_alone,
    ours=True,
)
PAPER.says("dct_fig5", "thresholds of activations fall faster with DCT-MP", thresholds.falls_faster)
PAPER.says(
    "dct_fig6a",
    "a Laplace distribution fits activations better than a Gaussian",
    thresholds.fits_better,
)
PAPER.says(
    "dct_fig6b",
    "a Laplace threshold of 75 % lets ever less through (25 to 13 %)",
    thresholds.occupancy_drifts,
)
PAPER.says(
    "dct_table6",
    "a Laplace threshold, 2 workers: 75 to 98 % sparse, test loss is no worse than uncompressed",
    all_are(not_worse, of_table_1(TABLE6, LAPLACE, (0.25, 0.1, 0.05, 0.02), stages=2, base=1)),
)
PAPER.says(
    "dct_table6",
    "a Laplace threshold, 2 workers: it is no worse than exact thresholds",
    all_are(not_worse, of_table_1(TABLE6, LAPLACE, (0.25, 0.1, 0.05, 0.02), stages=2)),
)
PAPER.says(
    "dct_table7",
    "a Gaussian sketch, 2 workers: 50 to 90 % sparse, the test loss is worse",
    all_are(worse, of_table(TABLE7, SKETCH, (0.5, *IN_BOTH), stages=2, base="allreduce")),
)
PAPER.says(
    "dct_table7",
    "a Gaussian sketch, 2 workers: it is worse than DCT-MP of the same sparsity",
    all_are(worse, of_table_1(TABLE7, SKETCH, IN_BOTH, stages=2)),
)
PAPER.says(
    "dct_table8",
    "top-k of the gradient alone, error feedback: 50 to 90 % sparse, the test loss is worse",
    all_are(worse, of_table(TABLE8, GRADIENT, (0.5, *IN_BOTH))),
)
PAPER.says(
    "dct_table8",
    "top-k of the gradient alone, error feedback: it is worse than DCT-MP of the same sparsity",
    all_are(worse, of_table_1(TABLE8, GRADIENT, IN_BOTH, stages=3)),
)
PAPER.says("dct_table8", "without error feedback it diverges", diverges)
PAPER.says(
    "dct_abstract",
    "up to 37 % less time",
    production.takes(production.HYBRID, production.TOGETHER, 0.629, **production.PIPELINE),
    repeats="dct_hybrid_prod",
)
PAPER.says(
    "dct_abstract",
    "up to 20 times less communication",
    production.twenty_times_less,
    by_construction="arithmetic: bytes at a fixed density are set, not found",
)
