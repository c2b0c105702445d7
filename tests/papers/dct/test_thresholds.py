"""What DCT claims of thresholds and activations, by what a watch writes."""

import math
from pathlib import Path

import pytest

from harness.records.run_directory import Bin, Table, Watched
from harness.reporting import claims
from harness.reporting.analysis import load, metrics
from harness.reporting.claims.base import FAILS, HOLDS, NOT_DECIDABLE, UNDECIDED
from papers.dct import thresholds
from tests import records_by_hand as by_hand
from tests.claims.tables import copied

SEEDS, STEPS = (0, 1, 2), 100
SPLIT = {"_target_": "harness.config.parallel.Split", "stages": 2}


def run(
    folder: Path, experiment: str, method: str, seed: int, *rows, achieved_density=math.nan
) -> None:
    """With rows of a watch, and `achieved_density` of activations over the steps."""
    config = by_hand.config(method, seed, experiment=experiment, workers=1, parallel=SPLIT)
    shares = achieved_density if callable(achieved_density) else lambda step: achieved_density
    steps = [by_hand.step(n, achieved_activation_density=shares(n)) for n in range(STEPS)]
    path = by_hand.run(folder / f"{experiment}-{method}-{seed}", config, steps)
    for kind, name in ((Watched, "watched.csv"), (Bin, "histograms.csv")):
        if found := [each for each in rows if isinstance(each, kind)]:
            written = Table(path, name)
            written.header()
            written.append(*found)
            written.close()
    by_hand.seal(path)


def verdict(folder: Path, text: str) -> tuple[str, str]:
    rows = metrics.table(load.runs(folder))
    judged = claims.judge(copied(rows, 1 if rows.seed.nunique() > 1 else 3), "dct")
    (claim,) = (claim for claim in judged if text in claim.text)
    return claim.verdict, claim.measured or claim.reason


@pytest.mark.parametrize(("exponent", "swing", "steps", "grows", "steady"), [
    (1.0, 0.2, STEPS, HOLDS, HOLDS),
    (0.1, 0.2, STEPS, FAILS, HOLDS),
    (1.0, 0.8, STEPS, HOLDS, FAILS),
    (1.0, 0.2, 20, HOLDS, NOT_DECIDABLE),
])  # fmt: skip
def test_a_gradients_threshold(tmp_path, exponent, swing, steps, grows, steady):
    """Of each run at the density that it sends; what it would be at others does not count."""
    for sent in thresholds.OF_GRADIENT:
        rows = [
            Watched(n, 0, "12.weight", d, (1 + (swing if n % 10 == 9 else 0)) * sent**-exponent
                    if d == sent else 1e9 * n)
            for n in range(steps)
            for d in thresholds.OF_GRADIENT
        ]  # fmt: skip
        run(tmp_path, thresholds.GRADIENT, thresholds.PUSHED.format(sent), 0, *rows)
    assert verdict(tmp_path, "threshold grows with sparsity")[0] == grows
    assert verdict(tmp_path, "at 95 % it varies little")[0] == steady


def test_the_scatter_over_seeds_leaves_thresholds_undecided(tmp_path):
    """Paired: a seed's thresholds are compared with its own, in whatever order runs are found."""
    for seed, exponent in ((2, 1.0), (0, 0.1), (1, 1.0)):
        for sent in thresholds.OF_GRADIENT[:: 1 if seed else -1]:
            scale = 10.0**seed * sent**-exponent
            rows = [
                Watched(n, 0, "12.weight", sent, scale * (1 + seed * (n % 10 == 9)))
                for n in range(STEPS)
            ]
            run(tmp_path, thresholds.GRADIENT, thresholds.PUSHED.format(sent), seed, *rows)
    assert verdict(tmp_path, "threshold grows with sparsity")[0] == UNDECIDED
    assert verdict(tmp_path, "at 95 % it varies little")[0] == UNDECIDED


def falling(folder: Path, seed: int, end: float, zero: tuple[float, ...] = ()) -> None:
    """Thresholds that fall to `end` where used, to 0.8 without; to 0 at densities `zero`."""
    for kept, last in [(1, 0.8), *((d, end) for d in thresholds.DENSITIES)]:
        rows = [
            Watched(n, 0, "cut0", d, (1 / d) * (1 - (1 - last) * n / (STEPS - 1)) * left)
            for n in range(STEPS)
            for d in thresholds.DENSITIES
            for left in [0 if d in zero and n > STEPS // 2 else 1]
        ]
        run(folder, thresholds.CUTS, f"dct_mp_{kept:g}", seed, *rows)


@pytest.mark.parametrize(("ends", "expected"), [
    ({0: 0.5, 1: 0.5, 2: 0.5}, HOLDS),
    ({0: 0.9, 1: 0.9, 2: 0.9}, FAILS),
    ({0: 0.5, 1: 0.9, 2: 0.5}, UNDECIDED),
])  # fmt: skip
def test_thresholds_fall_faster_where_they_are_used(tmp_path, ends, expected):
    """Without DCT-MP they fall to 0.8 of the start."""
    for seed in SEEDS:
        falling(tmp_path, seed, ends[seed])
    assert verdict(tmp_path, "fall faster with DCT-MP")[0] == expected


def test_a_threshold_that_ends_at_0_without_being_used_tells_nothing(tmp_path):
    for seed in SEEDS:
        falling(tmp_path / "one", seed, 0.5, zero=(0.25,))
        falling(tmp_path / "all", seed, 0.5, zero=thresholds.DENSITIES)
    found, measured = verdict(tmp_path / "one", "fall faster with DCT-MP")
    assert found == HOLDS and "90 %" in measured and "75 %" not in measured
    assert verdict(tmp_path / "all", "fall faster with DCT-MP")[0] == NOT_DECIDABLE


def below(x: float, heavy: bool) -> float:
    """P(X < x) of mean 0 and deviation 1: of Laplace where `heavy`, else normal."""
    if not heavy:
        return (1 + math.erf(x / math.sqrt(2))) / 2
    tail = math.exp(-abs(x) * math.sqrt(2)) / 2
    return tail if x < 0 else 1 - tail


@pytest.mark.parametrize(("heavy", "expected"), [(True, HOLDS), (False, FAILS)])
def test_a_laplace_distribution_fits_what_is_one(tmp_path, heavy, expected):
    edges = [n / 10 for n in range(-50, 51)]
    for seed in SEEDS:
        bins = [
            Bin(step, 0, "cut0", low, high, round(1e6 * (below(high, is_) - below(low, is_))), 0, 1)
            for step, is_ in ((900, not heavy), (10_000, heavy))
            for low, high in zip(edges, edges[1:], strict=False)
        ]
        run(tmp_path, thresholds.CUTS, "dct_mp_1", seed, *bins)
    found, measured = verdict(tmp_path, "a Laplace distribution fits")
    assert found == expected and measured.startswith("step 10000: ")


@pytest.mark.parametrize(("end", "expected"), [(0.13, HOLDS), (0.24, FAILS)])
def test_what_a_laplace_threshold_lets_through_drifts(tmp_path, end, expected):
    def share(step: int) -> float:
        return 0.25 + (end - 0.25) * step / (STEPS - 1)

    run(tmp_path, thresholds.LAPLACE, thresholds.DRIFTING, 0, achieved_density=share)
    found, measured = verdict(tmp_path, "lets ever less through")
    assert found == expected and " % at the start, " in measured


def test_what_was_not_watched_is_not_told(tmp_path):
    for sent in thresholds.OF_GRADIENT:
        run(tmp_path, thresholds.GRADIENT, thresholds.PUSHED.format(sent), 0)
    run(tmp_path, thresholds.LAPLACE, thresholds.DRIFTING, 0)
    found, reason = verdict(tmp_path, "threshold grows with sparsity")
    assert found == NOT_DECIDABLE and reason.startswith("no watched.csv of dct_dp_0.5_lifespan=1_")
    assert verdict(tmp_path, "lets ever less through")[0] == NOT_DECIDABLE
